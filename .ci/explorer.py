"""Train and pack the models of `ordinate explore`, and write the numbers that it cites.

    python .ci/explorer.py train FOLDER     six decoders and an encoder, from a fixed seed, 20 minutes on one core
    python .ci/explorer.py pack FOLDER      their weights in 8 bits, what that costs, and their losses
    python .ci/explorer.py page FOLDER      the page in a built documentation, with links into it

`pages()`, for `.ci/pages.py`, returns measured.json, what the panels cite from results in studies/, and a table.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from speeds import newest

from ordinate.core.atomic_files import write_json
from ordinate.explorer.measured import FILE, collect
from ordinate.explorer.model_facts import packed_model
from ordinate.explorer.packing import save_models
from ordinate.explorer.page import MODELS, RESULTS, explorer_page
from ordinate.explorer.rounding import rounded_copy
from ordinate.models.decoder import Decoder
from ordinate.pretrained.read_model import read_model

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ordinate" / "explorer"
SCHEMES = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
ENCODER = "encoder"
# a file that no model was trained on
READ = "src/ordinate/schemes/rope.py"
READ_BYTES = 1024
STUDIES = {
    "decoders": ["--schemes", *SCHEMES, "--steps", "900"],
    "encoder": ["--model", "encoder", "--schemes", "none", "--steps", "500"],
}
SHARED = ["--warmup-steps", "25", "--leader-seeds", "0", "--threads", "1"]
TIMES = {
    "first paint": "first paint: questions and answers",
    "first view": "first panel drawn, models unpacked",
    "pass, 64 bytes": "a forward pass of one model, 64 bytes",
    "pass, middle edited": "the same after an edit in the middle",
    "pass, last edited": "the same after an edit of the last byte",
}
# windows of held-out text for the cost of rounding
WINDOWS, LENGTH, BATCH = 512, 128, 32


def pages() -> dict[Path, Any]:
    """Return measured.json, the numbers and charts that panels cite, and the table of docs/explorer.md."""
    return {
        PACKAGE / FILE: json.dumps(collect(ROOT), indent=1, sort_keys=True) + "\n",
        ROOT / "docs" / "explorer.md": {"explorer": table(), "explorer times": times()},
    }


def table() -> str:
    """Return the losses of the models, and what rounding adds to them."""
    results = json.loads((PACKAGE / RESULTS).read_text(encoding="utf-8"))["models"]
    lengths = [one["length"] for one in results[SCHEMES[0]]["lengths"]]
    heads = [*(f"{length} bytes" for length in lengths), "by rounding"]
    lines = [f"| bits per byte | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 1)}"]
    for name in SCHEMES:
        losses = [f"{one['bits_per_byte']:.2f}" for one in results[name]["lengths"]]
        cost = results[name]["rounding"]
        losses.append(f"{cost['value']:+.4f} [{cost['low']:+.4f}, {cost['high']:+.4f}]")
        lines.append(f"| {name} | {' | '.join(losses)} |")
    return "\n".join(lines)


def times() -> str:
    """Return what the browser takes, from the newest result of `./dev bench explorer --save`."""
    path, told = newest("explorer")
    found = told["results"]
    lines = ["| in Chromium without a graphics card | median |", "|---|---|"]
    lines += [f"| {title} | {found[key]:.0f} ms |" for key, title in TIMES.items()]
    moves = [number for key, number in found.items() if key.startswith("move, ")]
    lines.append(f"| from a move to its picture, in {len(moves)} panels | {min(moves):.0f} to {max(moves):.0f} ms |")
    load = f"{found['load average']:.1f} processes were running on {told['machine']['cores']} cores"
    return "\n".join([*lines, "", f"From `benchmarks/results/{path.name}`; on average {load}."])


def train(folder: Path) -> None:
    """Train all models; an interrupted run resumes when the command is repeated."""
    for name, options in STUDIES.items():
        out = ["--out", str(folder / name)]
        subprocess.run([sys.executable, "-m", "ordinate", "study", *out, *options, *SHARED], check=True)


def packed(folder: Path) -> None:
    """Write weights and results into the package."""
    models, results = [], {}
    for name in SCHEMES:
        run = folder / "decoders" / "runs" / f"{name}-s0"
        model = cast(Decoder, read_model(run / "model", "decoder").eval())
        models.append(packed_model(model, name))
        results[name] = {**losses(run), "rounding": rounding_cost(model, folder / "decoders" / "data")}
    run = folder / "encoder" / "runs" / "none-s0"
    encoder: Any = read_model(run / "model", "encoder").eval()
    models.append(packed_model(encoder, ENCODER, kind="encoder", title="encoder without positions"))
    results[ENCODER] = {}
    save_models(PACKAGE / MODELS, models)
    about = json.loads((run.parents[1] / "study.json").read_text(encoding="utf-8"))
    text = (ROOT / READ).read_bytes()[:READ_BYTES].decode()
    write_json(
        PACKAGE / RESULTS,
        {
            "models": results,
            "text": {"name": READ, "content": text},
            "trained_on": about["text"],
            "versions": about["versions"],
            "code": about["code"],
            "seed": 0,
            "provenance": provenance(about["text"]),
        },
    )


def provenance(text: dict[str, Any]) -> str:
    """Say what the models were trained on."""
    return (
        "Six decoders and an encoder of 3 layers, width 96 and 4 heads, which read bytes: trained with seed 0 on "
        f"{text['train_documents']} files of the Python standard library (SHA-256 {text['sha256'][:12]}…), the "
        "decoders for 900 steps of 32 texts of 128 bytes, the encoder for 500. Their weights have 8 bits; the page "
        "computes in double precision, as PyTorch would with the same weights."
    )


def page(folder: Path) -> None:
    """Write the page beside the pages that it links."""
    (folder / "live.html").write_text(explorer_page(docs=""), encoding="utf-8")


def losses(run: Path) -> dict[str, Any]:
    """Return the held-out loss at each length and by position, of the model before rounding."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    lengths = [
        {"length": one["length"], "bits_per_byte": one["bits_per_byte"], "interval": one["interval"]}
        for one in result["lengths"]
    ]
    where = result["positions"]
    bits = [round(nats / float(np.log(2)), 4) for nats in where["nats_per_token"]]
    return {"lengths": lengths, "positions": where["position"], "bits_by_position": bits}


def rounding_cost(model: Decoder, data: Path) -> dict[str, float]:
    """Return the increase in held-out loss by rounding, on windows of the trained length [bits per byte]."""
    tokens = np.load(data / "validation.npy", mmap_mode="r")
    starts = np.linspace(0, len(tokens) - LENGTH, WINDOWS).astype(int)
    windows = torch.stack([torch.from_numpy(tokens[start : start + LENGTH].astype(np.int64)) for start in starts])
    rounded = cast(Decoder, rounded_copy(model))
    gaps = [mean_bits(rounded, part) - mean_bits(model, part) for part in windows.split(BATCH)]
    gap = torch.cat(gaps)
    error = 1.96 * float(gap.std()) / WINDOWS**0.5
    value = float(gap.mean())
    return {"value": value, "low": value - error, "high": value + error}


@torch.no_grad()
def mean_bits(model: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of each row [bits per byte]."""
    logits = model(ids[:, :-1])
    lost = torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none")
    return lost.mean(1).double() / float(np.log(2))


if __name__ == "__main__":
    verbs = {"train": train, "pack": packed, "page": page}
    if len(sys.argv) != 3 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    verbs[sys.argv[1]](Path(sys.argv[2]))
