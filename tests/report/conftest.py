"""Fixtures: the folder of a study with invented results."""

import hashlib
import json

import numpy as np
import pytest

LEVELS = {"none": 3.2, "sinusoidal": 3.0, "rope": 2.5, "alibi": 2.6}
BEYOND = {"none": 0.3, "sinusoidal": 1.8, "rope": 1.5, "alibi": -0.2}


def seal(text):
    """Give the text of a JSON object the checksum that a result must start with, whatever it holds."""
    rest = "," + text.lstrip()[1:]
    return f'{{\n "checksum": "{hashlib.sha256(rest.encode()).hexdigest()}"{rest}'


def finished(label, seed, *, spread=0.4, documents=40, level=None, windows=(1, 2, 4, 8, 16)):
    """A finished run in which documents differ more from each other than schemes do."""
    hard = np.random.default_rng(7).normal(0, spread, documents)
    own = np.random.default_rng([seed, *label.encode()]).normal(0, 0.01, documents)
    lengths = []
    for times in (1, 2, 4, 8):
        bits = (LEVELS.get(label, 3.0) if level is None else level) + BEYOND.get(label, 0) * np.log2(times) / 3
        rows = [
            {
                "name": f"file{i}.py",
                "tokens": 1024,
                "bytes": 1024,
                "nats": float((bits + hard[i] + own[i]) * np.log(2) * 1024),
            }
            for i in range(documents)
        ]
        nats = sum(row["nats"] for row in rows)
        lengths.append(
            {
                "length": 16 * times,
                "times": times,
                "nats_per_token": nats / (1024 * documents),
                "bits_per_byte": nats / np.log(2) / (1024 * documents),
                "interval": [1.0, 2.0],
                "documents": rows,
            }
        )
    return {
        "format": 1,
        "run": {"name": f"{label}-s{seed}", "scheme": label, "options": {}, "label": label, "seed": seed},
        "status": "done",
        "step": 20,
        "message": "",
        "parameters": {"total": 1200, "trained": 1000, "scheme": 200, "feedforward": 64, "note": ""},
        "training": {"steps": list(range(1, 21)), "loss": [5 - 0.1 * step for step in range(20)]},
        "lengths": lengths,
        "positions": {"position": [0, 64], "nats_per_token": [3.0, 2.5], "trained_length": 16},
        "order": [{"window": window, "nats_per_token": 2 + 0.1 * place} for place, window in enumerate(windows)],
        "samples": [{"prompt": "def ", "text": "f():"}],
        "cost": {"tokens_per_second": 1000.0, "peak_memory_bytes": 1 << 29, "seconds": 3.0},
    }


@pytest.fixture
def result():
    """Return a finished run of a scheme and a seed, with invented values."""
    return finished


@pytest.fixture
def write(tmp_path):
    """Write a study with these results, sealed; a string in place of a result is written verbatim."""

    def make(results, schemes=tuple(LEVELS), seeds=1, **changes):
        folder = tmp_path / "study"
        folder.mkdir(exist_ok=True)
        plan = {
            "text": "stdlib", "tokenizer": "bytes", "schemes": list(schemes), "seeds": seeds, "length": 16,
            "steps": 20, "batch": 4, "width": 32, "layers": 2, "heads": 4, "match": "params",
            "eval_length_multiples": [1, 2, 4, 8],
        }  # fmt: skip
        about = {
            "format": 1,
            "plan": plan,
            "text": {"name": "stdlib", "sha256": "ab" * 32, "bytes": 10, "held_out": "10% of the files"},
            "machine": {
                "system": "Linux",
                "processor": "some",
                "cores": 2,
                "memory_bytes": 8 << 30,
                "python": "3.11.7",
            },
            "versions": {"ordinate": "0.1.0", "torch": "2.13.0"},
            "command": "ordinate study --out study",
            "code": "cd" * 32,
        } | changes
        (folder / "study.json").write_text(seal(json.dumps(about)))
        for item in results:
            name = item["run"]["name"] if isinstance(item, dict) else "broken"
            place = folder / "runs" / name
            place.mkdir(parents=True, exist_ok=True)
            (place / "result.json").write_text(seal(json.dumps(item)) if isinstance(item, dict) else item)
        return folder

    return make
