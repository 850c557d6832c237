import runpy
import tomllib
from pathlib import Path

import pytest

from ordinate.evaluation.comparison import Comparison
from ordinate.study.model_sizing import shape_of
from ordinate.study.plan import DEFAULT_SCHEMES, Plan
from ordinate.study.run import Run

ROOT = Path(__file__).parents[2]
script = runpy.run_path(str(ROOT / ".ci" / "baselines.py"))
Baseline = script["Baseline"]


def found(difference, adjusted):
    bounds = (difference - 0.01, difference + 0.01)
    return Comparison(difference, bounds, adjusted, adjusted, None, None, 2, 50, adjusted < 0.05)


@pytest.mark.parametrize(
    ("difference", "adjusted", "told"),
    [(0.1, 0.001, "worse than"), (-0.1, 0.001, "better than"), (0.1, 0.2, "not significantly different from")],
)
def test_a_sentence_says_which_is_better(difference, adjusted, told):
    pair = Baseline("sinusoidal", "the paper"), Baseline("learned", "GPT-2")
    words = f"sinusoidal (the paper) is **{told}** learned (GPT-2)"
    assert script["say"](pair, found(difference, adjusted)).startswith(f"{words}: {difference:+.3f} (")


@pytest.mark.extended
def test_the_column_of_defaults_is_what_a_study_does():
    results = script["Results"](script["FOLDER"])
    for scheme in results.schemes:
        shape = shape_of(Plan(), Run(label=scheme, scheme=scheme, mixer="softmax", seed=0), 256)
        assert results.default(scheme).kind == script["kind_of"](shape.embedding_scale, shape.embedding_std)
        assert results.default(scheme) in results.tables


def test_the_study_is_that_of_the_committed_plan():
    results = script["Results"](script["FOLDER"])
    plan = tomllib.loads((ROOT / ".ci" / "baselines.toml").read_text())
    made = {script["kind_of"](cell["embedding_scale"], cell["embedding_std"]): cell for cell in plan["cells"]}
    assert list(results.studies) == list(made)
    for kind, study in results.studies.items():
        told = {"scale": made[kind]["embedding_scale"], "std": made[kind]["embedding_std"]}
        runs = [run for label in study.arms for run in study.finished(label)]
        assert len(runs) == plan["seeds"] * len(DEFAULT_SCHEMES)
        assert all(run["token_embeddings"] == told for run in runs)
