"""The script that runs everything that needs a GPU, rehearsed on a CPU."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script():
    return loaded("gpu")


def say(text):
    return ["-c", f"print({text!r})"]


def test_a_part_is_run_once_while_the_code_is_the_same(script, tmp_path, capsys, monkeypatch):
    part = script.Part("one", 1, ["-c", "raise SystemExit(3)"], say("hello"))
    assert script.done_or_run(part, tmp_path, 60.0, dry=True)
    assert (tmp_path / "one.log").read_text() == "hello\n"
    state = json.loads((tmp_path / "one.json").read_text())
    assert (state["code"], state["facts"]["device"]) == (0, "rehearsal")
    assert script.done_or_run(part, tmp_path, 60.0, dry=True)
    assert "one: done before" in capsys.readouterr().out
    monkeypatch.setattr(script, "digest", lambda: "changed")
    assert script.done_or_run(part, tmp_path, 60.0, dry=True)
    assert "one: done before" not in capsys.readouterr().out
    # another PyTorch, Triton or Python, too
    assert set(script.versions()) == {"python", "torch", "triton"}
    monkeypatch.setattr(script, "versions", lambda: {"torch": "9.9"})
    assert script.done_or_run(part, tmp_path, 60.0, dry=True)
    assert "one: done before" not in capsys.readouterr().out


@pytest.mark.parametrize("file", ["src/a.py", "benchmarks/a.py", ".ci/a.py", "tests/attention/a.py", "dev"])
def test_all_code_that_the_parts_run_counts(file, script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "ROOT", tmp_path)
    for name in (file, "dev", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    before = script.digest()
    (tmp_path / file).write_text("changed")
    assert script.digest() != before


def test_a_part_that_fails_is_told_and_tried_again(script, tmp_path, capsys):
    part = script.Part("bad", 1, [], ["-c", "raise SystemExit(3)"])
    for _ in range(2):
        assert not script.done_or_run(part, tmp_path, 60.0, dry=True)
        assert "bad: failed (exit status 3)" in capsys.readouterr().out


def test_a_part_is_stopped_at_its_limit_and_keeps_what_it_printed(script, tmp_path, capsys):
    program = "import time; print('begun', flush=True); time.sleep(60)"
    part, begin = script.Part("long", 1, [], ["-c", program]), time.monotonic()
    assert not script.done_or_run(part, tmp_path, 1.0, dry=True)
    assert time.monotonic() - begin < 30
    assert "stopped at its limit" in capsys.readouterr().out
    assert (tmp_path / "long.log").read_text().startswith("begun")


def test_without_time_nothing_is_begun(script, tmp_path, capsys):
    assert not script.done_or_run(script.Part("late", 1, [], say("hello")), tmp_path, 0.0, dry=True)
    assert "late: no time left" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.extended
def test_forms_whose_process_ends_early_are_told():
    script, options = loaded("gpu_proofs").__file__, ["--device", "cpu", "--quick"]
    (row,) = loaded("jobs").run(script, [["float32", "16", "no geometry", "others"]], options, "proofs-all")
    assert row == {"job": "float32 16 no geometry others", "reason": "its process ended with exit status 1"}


def run_dev(*arguments):
    command = [sys.executable, str(ROOT / "dev"), "--here", *arguments]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the error is about a machine without a GPU")
@pytest.mark.parametrize(
    "verb", [["benchmarks", "kernels"], ["pytest", "-p", "no:cacheprovider", "tests/core/test_catalog.py"]]
)
def test_a_device_that_is_not_there_is_a_clear_error(verb):
    command = [sys.executable, "-m", *verb, "--device", "cuda"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode not in (0, 1)
    assert "--device cuda needs a GPU that torch.cuda finds; got none" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.extended
def test_the_development_script_runs_with_the_packages_that_are_here(tmp_path):
    done = run_dev("gpu", "--dry-run", "--out", str(tmp_path), "about")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "about.log").read_text())["devices"] == []
    done = run_dev("gpu", "--out", str(tmp_path), "about")
    assert done.returncode == 1
    assert "./dev gpu needs a GPU that torch.cuda finds; got none; add --dry-run" in done.stderr
    done = run_dev("gpu", "abuot")
    assert "no part is named 'abuot'; there are: about, proofs" in done.stderr


@pytest.mark.extended
def test_the_dry_run_runs_every_part(tmp_path):
    done = run_dev("gpu", "--dry-run", "--out", str(tmp_path))
    ends = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json") if "_" not in path.stem}
    failed = [name for name, row in ends.items() if isinstance(row, dict) and row.get("code")]
    logs = {name: (tmp_path / f"{name}.log").read_text()[-1500:] for name in failed}
    assert done.returncode == 0, (done.stdout, logs)
    assert list(tmp_path.glob("attention-rehearsal_*.json"))
    assert list(tmp_path.glob("decoder-rehearsal_*.json"))
    assert (tmp_path / "study" / "report.html").is_file()
