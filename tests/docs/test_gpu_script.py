"""The script that runs everything that needs a GPU, rehearsed on a CPU."""

import importlib.util
import json
import os
import re
import signal
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
    job = "float32 16 no geometry others"
    assert row == {"job": job, "reason": "its process ended with exit status 1", "status": 1}


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
    assert json.loads((tmp_path / "rehearsal" / "about.log").read_text())["devices"] == []
    done = run_dev("gpu", "--out", str(tmp_path), "about")
    assert done.returncode == 1
    assert "./dev gpu needs a GPU that torch.cuda finds; got none; add --dry-run" in done.stderr
    done = run_dev("gpu", "abuot")
    assert "no part is named 'abuot'; there are: about, proofs" in done.stderr


@pytest.mark.extended
def test_the_dry_run_runs_every_part(script, tmp_path):
    done = run_dev("gpu", "--dry-run", "--out", str(tmp_path))
    out = tmp_path / "rehearsal"
    ends = {part.name: json.loads((out / f"{part.name}.json").read_text()) for part in script.parts()}
    failed = [name for name, row in ends.items() if row["code"]]
    logs = {name: (out / f"{name}.log").read_text()[-1500:] for name in failed}
    assert done.returncode == 0, (done.stdout, logs)
    for name in ("attention-rehearsal_*.json", "decoder-rehearsal_*.json", "study-*/report.html"):
        assert list(out.glob(name)), name
    for name in ("proofs-all", "models-all"):
        rows = json.loads((out / f"{name}.json").read_text())
        assert len(rows) > 4
        assert not [row for row in rows if row["reason"] is not None]


def test_what_a_part_printed_last_is_told(script, tmp_path, capsys):
    assert script.done_or_run(script.Part("one", 1, [], say("9 forms, 2 wrong\n")), tmp_path, 60.0, dry=True)
    assert " s: 9 forms, 2 wrong\n" in capsys.readouterr().out
    script.done_or_run(script.Part("none", 1, [], ["-c", "pass"]), tmp_path, 60.0, dry=True)
    assert " s: it printed nothing\n" in capsys.readouterr().out


STOPPED = """
import runpy, sys

script = runpy.run_path(sys.argv[1])
program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
own = script["main"].__globals__
own["parts"] = lambda: [script["Part"]("long", 1, [], ["-c", program])]
sys.argv = ["gpu", "--dry-run", "--out", sys.argv[2]]
sys.exit(script["main"]())
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_part_that_runs(number, script, tmp_path):
    command = [sys.executable, "-c", STOPPED, script.__file__, str(tmp_path)]
    made, log = subprocess.Popen(command, stderr=subprocess.PIPE, text=True), tmp_path / "rehearsal" / "long.log"
    waited(lambda: log.is_file() and log.read_text().endswith("\n"))
    made.send_signal(number)
    _, said = made.communicate(timeout=60)
    assert made.returncode == 1
    name = number.name
    assert said == f"./dev gpu was stopped by {name}; the same command runs the parts that are not done\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text().split()[0]), 0)
    assert not (tmp_path / "rehearsal" / "long.json").exists()


def waited(holds):
    """Wait until a condition holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


JOB = """
import json, sys, time
name = sys.argv[-1]
if name == "slow":
    time.sleep(60)
if name == "bad":
    sys.exit(3)
print(json.dumps([{"job": name, "reason": None if name == "good" else "another sum"}]))
"""
JOBS = """
import signal
import sys
# a shell has its background jobs ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
import jobs
jobs.run(sys.argv[2], [[name] for name in sys.argv[3:]], [], "rows")
"""


def test_jobs_are_saved_and_told_also_one_whose_process_ends_early(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ORDINATE_BENCH_RESULTS", str(tmp_path))
    jobs, job = loaded("jobs"), tmp_path / "job.py"
    job.write_text(JOB)
    for names, early, last in ((("good", "wrong"), 0, "2 forms, 1 wrong"), (("good", "bad"), 1, "2 forms, 1 wrong")):
        found = jobs.run(str(job), [[name] for name in names], [], "rows")
        assert {row["job"] for row in found} == set(names)
        assert json.loads((tmp_path / "rows.json").read_text()) == found
        assert jobs.told(found) == early
        assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_jobs_that_are_done_when_others_are_stopped_are_saved(tmp_path):
    job, rows = tmp_path / "job.py", tmp_path / "rows.json"
    job.write_text(JOB)
    command = [sys.executable, "-c", JOBS, str(ROOT / ".ci"), str(job), "slow", "good", "slow"]
    environment = os.environ | {"ORDINATE_BENCH_RESULTS": str(tmp_path)}
    # a session of its own, all of which gets the signal, as that of a part does
    made = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    waited(rows.is_file)
    os.killpg(made.pid, signal.SIGINT)
    _, said = made.communicate(timeout=60)
    assert made.returncode == 1
    assert said.splitlines()[-1] == "stopped after 1 of 3 jobs"
    assert json.loads(rows.read_text()) == [{"job": "good", "reason": None}]


def test_what_jobs_find_is_not_replaced_by_how_their_part_ended(script):
    names = {part.name for part in script.parts()}
    for part in ("proofs", "models"):
        text = (ROOT / ".ci" / f"gpu_{part}.py").read_text(encoding="utf-8")
        (file,) = re.findall(r'run\(__file__, .*"([\w-]+)"\)', text)
        assert file not in names
