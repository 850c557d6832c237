"""A study is killed in each of its phases, repeated, and has the results of one that was never interrupted."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

VICTIM = Path(__file__).with_name("study_victim.py")
PHASES = ("reading data", "planning", "training", "checkpoint", "saving the model", "measuring", "result", "report")


def kills(folder, count):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(VICTIM), str(folder), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=7200)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == count
    assert all(one["died"] == -signal.SIGALRM for one in found)
    assert all(one["same"] for one in found), [one for one in found if not one["same"]]
    return Counter(one["fell"] for one in found)


@pytest.mark.extended
def test_a_study_killed_in_each_phase_has_the_same_results_when_it_is_repeated(tmp_path):
    assert kills(tmp_path, len(PHASES)).total() == len(PHASES)


@pytest.mark.crash
def test_two_hundred_kills_fall_into_every_phase(tmp_path, capsys):
    found = kills(tmp_path, 200)
    with capsys.disabled():
        print("\n200 kills of a study, by phase")
        for phase in PHASES:
            print(f"{phase:17} {found[phase]:3} {'#' * found[phase]}")
    assert all(found[phase] for phase in PHASES), found
