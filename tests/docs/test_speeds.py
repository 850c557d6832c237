import json
import runpy
from pathlib import Path

import attention_speeds
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


RESULTS = {"training, N 4096": {kind: {"t5@native": {"ratio": 0.5, "goal": 0.4}} for kind in ("float32", "bfloat16")}}


def test_what_is_missing_is_named():
    with pytest.raises(SystemExit, match="has no 'shaw@' in 'training, N 4096'"):
        attention_speeds.measured(RESULTS, "training, N 4096", "shaw@")


def test_attention_has_a_column_for_each_processor(monkeypatch):
    monkeypatch.setattr(attention_speeds, "ROWS", {"T5": ("training, N 4096", "t5@native")})
    rows = attention_speeds.table({"one": RESULTS, "other": RESULTS})
    assert rows == [["float32, bfloat16", "one", "other", "goals"], ["T5", *[r"0.50 \*, 0.50 \*"] * 2, "0.4"]]


def test_the_short_table_gives_the_range_of_several_members(monkeypatch):
    monkeypatch.setattr(attention_speeds, "ANSWERS", {"both": [("all", "a@"), ("all", "b@")]})
    found = {"all": {kind: {"a@": {"ratio": 1.24}, "b@": {"ratio": 0.96}} for kind in ("float32", "bfloat16")}}
    assert attention_speeds.answers({"one": found})[1] == ["both", "1.0 to 1.2, 1.0 to 1.2"]
