import runpy
import tomllib
from pathlib import Path

import pytest

from ordinate.evaluation.comparison import Comparison
from ordinate.study.options import FORMER_VALUES

ROOT = Path(__file__).parents[2]
script = runpy.run_path(str(ROOT / ".ci" / "baselines.py"))
Baseline = script["Baseline"]


def found(difference, adjusted):
    bounds = (difference - 0.01, difference + 0.01)
    return Comparison(difference, bounds, adjusted, adjusted, None, None, 2, 50)


@pytest.mark.parametrize(
    ("difference", "adjusted", "told"),
    [(0.1, 0.001, "worse than"), (-0.1, 0.001, "better than"), (0.1, 0.2, "not significantly different from")],
)
def test_a_sentence_says_which_is_better(difference, adjusted, told):
    pair = Baseline("sinusoidal", 9.8), Baseline("learned", 1.0)
    words = f"sinusoidal with the token embeddings of the paper is **{told}** learned with the token embeddings of GPT-2"
    assert script["say"](pair, found(difference, adjusted)).startswith(f"{words}: {difference:+.3f} (")


def test_the_column_of_defaults_is_what_a_study_does():
    results = script["Results"](script["FOLDER"])
    chosen = {scheme: script["default"](scheme, results) for scheme in results.schemes}
    assert {scheme for scheme, one in chosen.items() if one.scale != FORMER_VALUES["embedding_scale"]} == {"sinusoidal"}
    assert chosen["sinusoidal"] in results.entries


def test_the_study_is_that_of_the_committed_plan():
    results = script["Results"](script["FOLDER"])
    plan = tomllib.loads((ROOT / ".ci" / "baselines.toml").read_text())
    assert results.scales == sorted(plan["embedding_scale"])
    made = {cell["embedding_scale"]: cell["embedding_std"] for cell in plan["cells"]}
    for scale, study in results.studies.items():
        runs = [run for label in study.arms for run in study.finished(label)]
        assert len(runs) == plan["seeds"] * 8
        assert all(run["token_embeddings"] == {"scale": scale, "std": made[scale]} for run in runs)
