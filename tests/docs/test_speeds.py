import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
script = runpy.run_path(str(ROOT / ".ci" / "speeds.py"))


def test_a_goal_that_is_missed_has_a_star():
    assert script["cell"]({"ratio": 0.514, "goal": 0.5}) == r"0.51 \*"
    assert script["cell"]({"ratio": 0.501, "goal": 0.5}) == r"0.50 \*"
    assert script["cell"]({"ratio": 0.499, "goal": 0.5}) == "0.50"
    assert script["cell"]({"ratio": 7.0}) == "7.00"


def test_the_newest_result_of_that_name_is_taken(tmp_path, monkeypatch):
    monkeypatch.setitem(script["newest"].__globals__, "RESULTS", tmp_path)
    with pytest.raises(SystemExit, match=r"run ./dev bench --save mixers"):
        script["newest"]("mixers")
    names = ("mixers_x86_64", "mixers_arm", "mixers-shared_x86_64", "mixers_parts-linear_x86_64")
    for number, name in enumerate(names):
        (tmp_path / f"{name}-2-cores_2026-01-0{number + 1}.json").write_text(json.dumps({"number": number}))
    assert script["newest"]("mixers")[1] == {"number": 1}


def test_what_is_missing_is_named():
    with pytest.raises(SystemExit, match="has no 't5@native' in 'training, N 4096'"):
        script["attention"]({"training, N 4096": {"float32": {}, "bfloat16": {}}})
