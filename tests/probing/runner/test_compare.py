import shutil

import numpy as np
import pytest
import torch

from ordinate.cli.application import app
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing.activations.intervention import patch
from ordinate.probing.measures.head_matching import match_heads, matches_table
from ordinate.probing.runner.compare import compare
from ordinate.probing.runner.training_checkpoints import model_sources
from ordinate.testing.analytic_model import AnalyticModel
from ordinate.training.checkpoint import checkpoint_path, write_checkpoint

SHAPE = Shape(vocabulary=256, width=16, heads=2, layers=2, scheme="learned", max_length=32)
SIZES = {"tokens": (8, 16), "samples": 12}


def model(seed):
    torch.manual_seed(seed)
    made = Decoder(SHAPE)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(4)
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Texts, a model, and a run with two checkpoints: the first of other weights, the last of its model."""
    root = tmp_path_factory.mktemp("compare")
    (root / "text").mkdir()
    for number in range(12):
        (root / "text" / f"{number}.txt").write_text("".join(f"{number} {line} some words\n" for line in range(20)))
    for name, seed in (("plain", 1), ("run/model", 0)):
        model(seed).save_pretrained(root / name)
        Bytes().save(root / name)
    for step, seed in ((100, 2), (200, 0)):
        weights = {f"model.{name}": x for name, x in model(seed).state_dict().items()}
        path = checkpoint_path(root / "run" / "checkpoints", step)
        path.parent.mkdir(exist_ok=True)
        write_checkpoint({"state_dict": weights}, path)
    return root


@pytest.fixture(scope="module")
def found(root):
    return compare(root / "run", root / "plain", text=str(root / "text"), **SIZES)


def test_checkpoints_of_a_run_and_a_model_are_compared_on_the_same_texts(root, found):
    evaluation = found.evaluation
    names = [one.name for one in evaluation.models]
    assert names == ["run step 100", "run step 200", "plain"]
    # three pairs at two lengths; five groups of sixteen positions
    assert len(evaluation.differences) == 6
    assert len(evaluation.by_position) == 15
    for one in evaluation.differences:
        values = {model.name: value.value for model in evaluation.models for value in model.lengths
                  if value.length == one.length}  # fmt: skip
        assert one.difference == pytest.approx(values[one.first] - values[one.second])
    # the checkpoints have weights of their own
    assert (evaluation.differences[0].first, evaluation.differences[0].second) == ("run step 100", "run step 200")
    assert abs(evaluation.differences[0].difference) > 0.01
    tables = found.tables()
    assert [row[:2] for row in tables["values_by_length"].rows[::2]] == [
        ("run step 100", 100), ("run step 200", 200), ("plain", None)
    ]  # fmt: skip
    assert len(tables["matched_heads"].rows) == 8
    assert len(tables["kinds_of_heads"].rows) == 3 * 4 * 4
    assert [chart.title for chart in found.finding.charts] == [
        "Value by length", "Difference by position", "Value over steps", "Strongest heads over steps",
        "Heads over steps",
    ]  # fmt: skip
    assert found.finding.charts[2].lines[0].x == (100.0, 200.0)


def test_differences_by_position_add_up_to_that_of_the_length(found):
    """Every token has one byte: the difference of a length is the mean of those of its positions."""
    for one in (one for one in found.evaluation.differences if one.length == 16):
        own = [x for x in found.evaluation.by_position if (x.first, x.second) == (one.first, one.second)]
        assert [(x.start, x.stop) for x in own] == [(0, 1), (1, 2), (2, 4), (4, 8), (8, 16)]
        assert sum(x.difference * (x.stop - x.start) for x in own) / 16 == pytest.approx(one.difference)
        assert all(x.interval[0] < x.difference < x.interval[1] for x in own)


def test_a_checkpoint_of_the_final_weights_is_the_model(root, tmp_path):
    found = compare(root / "run" / "checkpoints" / "step-00000200", root / "run" / "model",
                    text=str(root / "text"), **SIZES)  # fmt: skip
    assert [one.difference for one in found.evaluation.differences] == [0, 0]
    assert "\nCannot be told. Run step 200 - run at" in str(found)
    assert "None of 2 differences is significant after correction" in str(found)
    assert found.matches[0].overlap == pytest.approx(1, abs=1e-5)
    assert found.matches[0].moved == 0
    shutil.copytree(root / "run", tmp_path / "copy")
    (tmp_path / "copy" / "checkpoints" / "step-00000100" / "state.json").write_text("{")
    with pytest.raises(ValueError, match=r"a checkpoint must be whole; .*step-00000100 is not .*; leave it out"):
        compare(tmp_path / "copy", text=str(root / "text"), **SIZES)


def test_permuted_heads_are_matched_with_themselves():
    first, second = AnalyticModel("learned", layers=2), AnalyticModel("learned", layers=2)
    ids = torch.randint(50, (24, 12), generator=torch.Generator().manual_seed(0))
    for part in ("query", "key", "value", "out"):
        object.__setattr__(second.weights[1], part, getattr(second.weights[1], part).flip(0))
    found = match_heads(first, second, ids)
    assert set(found.pairs) == {((0, 0), (0, 0)), ((0, 1), (0, 1)), ((1, 0), (1, 1)), ((1, 1), (1, 0))}
    assert found.moved == 2
    assert found.overlap == pytest.approx(1, abs=1e-6)
    assert (found.adjusted_p < 0.05).all()
    assert matches_table([found]).rows[2][:4] == ("plain", "1.0", "plain", "1.1")


def test_heads_of_unrelated_models_overlap_no_more_than_others():
    """The choice of the best match does not count, since it is made on other texts."""
    ids = torch.randint(50, (24, 12), generator=torch.Generator().manual_seed(0))
    first, second = (AnalyticModel("none", layers=2, seed=seed) for seed in (1, 2))
    found = match_heads(first, second, ids)
    assert np.abs(found.overlap - found.null).max() < 0.1
    with pytest.raises(ValueError, match="heads are matched on 8 to 40 texts; got 4; give 32"):
        match_heads(first, second, ids[:4])


def test_a_match_by_chance_has_the_overlap_of_any_other_pair():
    """Patterns that are drawn anew at each call: a match measured on the texts that chose it would look like one."""
    generator = torch.Generator().manual_seed(0)

    def drawn(pattern):
        noise = 8 * torch.randn(pattern.shape, generator=generator, dtype=pattern.dtype)
        return noise.masked_fill(pattern == 0, -torch.inf).softmax(-1)

    first, second = (patch(AnalyticModel("none", heads=4, seed=seed), "pattern", drawn) for seed in (1, 2))
    ids = torch.randint(50, (8, 12), generator=torch.Generator().manual_seed(0))
    found = match_heads(first, second, ids)
    assert abs((found.overlap - found.null).mean()) < 0.01
    assert (found.adjusted_p > 0.05).all()


@pytest.mark.extended
def test_the_command_writes_page_tables_and_charts(root, tmp_path, capsys):
    words = ["compare", str(root / "run"), "--text", str(root / "text"), "--tokens", "8", "16", "--samples", "8"]
    assert app([*words, "--out", str(tmp_path / "out")], result_action="return_value") == 0
    said = capsys.readouterr().out
    assert "Do these models predict the same text equally well, and do their heads agree?\n" in said
    assert f"page: {tmp_path / 'out' / 'compare.html'}" in said.replace("\n", "")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".html", ".csv", ".svg"}
    page = (tmp_path / "out" / "compare.html").read_text()
    # five charts, each for a desk and for a telephone
    assert page.count("<svg") == 10
    assert "run step 100" in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert (tmp_path / "out" / "value_over_steps.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (["plain"], "a comparison needs two models or checkpoints; got 1; give another"),
        (["plain", "plain"], "each model is compared once; .*plain twice; leave one out"),
        (
            ["plain", "text"],
            "a place to compare must be the folder of a model, of a run with checkpoints, .*text is",
        ),
        (["plain", "open"], "a run must have ended: its model names the shape; .*open has none; resume it first"),
        (
            ["plain", "other"],
            "a checkpoint must have the weights of its run's model; .*step-00000100 has others",
        ),
    ],
)
def test_places_without_a_model_are_refused(root, places, message):
    if not (root / "open").exists():
        shutil.copytree(root / "run" / "checkpoints", root / "open" / "checkpoints")
        shutil.copytree(root / "run" / "checkpoints", root / "other" / "checkpoints")
        Decoder(Shape(vocabulary=256, width=8, heads=2, layers=1, max_length=32)).save_pretrained(
            root / "other" / "model"
        )
        Bytes().save(root / "other" / "model")
    with pytest.raises(ValueError, match=message):
        compare(*(root / place for place in places), text=str(root / "text"), **SIZES)


def test_every_place_of_a_run_names_the_same_checkpoints(root):
    whole = model_sources([root / "run"])
    assert [source.step for source in whole] == [100, 200]
    assert model_sources([root / "run" / "checkpoints"]) == whole
    assert model_sources([root / "run" / "checkpoints" / "step-00000200"]) == whole[1:]
