"""Token embeddings of a study's models: their ratio to what schemes add is kept, unless the plan says otherwise."""

import json
from pathlib import Path

import pytest
import torch

from ordinate import Decoder
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.progress import ignore
from ordinate.study import model_sizing
from ordinate.study.executors.local import LocalExecutor
from ordinate.study.grid import join_cells
from ordinate.study.model_sizing import shape_of
from ordinate.study.options import FORMER_VALUES, unset_fields
from ordinate.study.plan import DEFAULT_IMAGE_SCHEMES, DEFAULT_SCHEMES, Plan
from ordinate.study.resolve import resolve
from ordinate.study.run import Run
from ordinate.study.runner import run_study
from ordinate.study.study_folder import OtherStudyError, StudyFolder

STUDIES = Path(__file__).parents[2] / "studies"
PLAN = Plan(width=64, layers=2, heads=4, length=16)
GPT2, RATIO = (1.0, 0.02), (0.16, 0.02)
FORMER = {"embedding_scale": 1.0, "embedding_std": 0.02}


def run_of(scheme):
    return Run(label=scheme, scheme=scheme, mixer="softmax", seed=0)


def embeddings(scheme, plan=PLAN):
    shape = shape_of(plan, run_of(scheme), 256)
    return shape.embedding_scale, shape.embedding_std


def check_ratio(plan=PLAN):
    """Check that waves are added to token embeddings of their size, from a table of the paper's size."""
    torch.manual_seed(0)
    model = Decoder(shape_of(plan, run_of("sinusoidal"), 256))
    with torch.no_grad():
        x = model.embed_tokens(torch.arange(256)[None])
    assert float(x.std()) == pytest.approx(model.schemes[0].scale, rel=0.03)
    assert float(model.tokens.weight.detach().std()) == pytest.approx(plan.width**-0.5, rel=0.03)


@pytest.mark.parametrize("std", [0.02, 1.0])
def test_the_ratio_of_waves_to_tokens_is_that_of_the_paper(std):
    check_ratio(PLAN.model_copy(update={"embedding_std": std}))


def test_a_study_without_the_convention_is_caught(monkeypatch):
    monkeypatch.setattr(model_sizing, "with_token_embeddings", lambda shape, plan: shape)
    with pytest.raises(AssertionError):
        check_ratio()


@pytest.mark.parametrize("scheme", [*DEFAULT_SCHEMES, "sinusoidal:trainable=true", "learned+alibi", "rope/none"])
def test_every_scheme_has_the_same(scheme):
    assert embeddings(scheme) == RATIO


@pytest.mark.parametrize("scheme", DEFAULT_IMAGE_SCHEMES)
def test_images_have_no_token_table(scheme):
    plan = Plan(model="vision", width=48, layers=2)
    shape = shape_of(plan, run_of(scheme), 10)
    assert (shape.embedding_scale, shape.embedding_std) == GPT2


@pytest.mark.parametrize("model", ["encoder", "encoder-decoder"])
def test_other_models_of_tokens_have_it_too(model):
    plan = Plan(model=model, width=64, layers=2, heads=4, length=16)
    assert embeddings("sinusoidal", plan) == RATIO


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"embedding_scale": 2.0}, (2.0, 0.02)),
        # the factor of the paper
        ({"embedding_std": 1.0}, (8.0, 1.0)),
        (FORMER, GPT2),
    ],
)
def test_the_plan_may_set_both(changes, expected):
    assert embeddings("sinusoidal", PLAN.model_copy(update=changes)) == expected


@pytest.mark.extended
def test_only_the_factor_differs_from_a_study_of_an_earlier_version():
    asked = PLAN.model_copy(update=FORMER)
    for scheme in DEFAULT_SCHEMES:
        one, other = (vars(shape_of(plan, run_of(scheme), 256)) for plan in (PLAN, asked))
        told = {name for name in one if one[name] != other[name]}
        assert told == {"embedding_scale"}


def test_options_without_effect_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"every option must have an effect; .* got --embedding-scale; leave"):
        resolve(Plan(model="vision", embedding_scale=2.0))
    with pytest.raises(ValueError, match="greater than 0"):
        Plan(embedding_scale=0.0)


def test_a_plan_of_an_earlier_version_keeps_its_meaning_and_its_digest():
    digest = "81a228f7"
    fields = json.loads((STUDIES / "ten" / "study.json").read_text())["plan"]
    fields = {key: value for key, value in fields.items() if key not in FORMER_VALUES}
    plan = Plan.stored(fields)
    assert plan.digest() == digest
    assert embeddings("sinusoidal", plan) == GPT2
    # the same command means something else now
    assert Plan.model_validate(fields).digest() != digest


def test_a_field_without_effect_is_in_no_digest():
    assert unset_fields({"task": "images", "embedding_scale": None}) >= {"embedding_scale", "embedding_std"}
    assert unset_fields({"base": "x", "embedding_scale": None}) >= {"embedding_scale", "embedding_std"}
    assert unset_fields({"embedding_scale": None}) == {"encoding", "embedding_std", "leader_seeds"}
    assert unset_fields({"embedding_std": 1.0}) == {"encoding", "embedding_scale", "leader_seeds"}


SIZES = {"length": 16, "steps": 2, "batch": 2, "width": 16, "layers": 1, "heads": 2, "warmup_steps": 1}
MEASURES = {"eval_samples": 2, "shuffle_samples": 2, "generated_texts": 0, "eval_length_multiples": (1, 2)}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(20):
        (folder / f"{number}.txt").write_text("".join(f"the {number} of line {word}\n" for word in range(40)))
    return str(folder)


def small(text, **changes):
    return resolve(Plan(**{"text": text, "schemes": ("sinusoidal",), "threads": 1} | SIZES | MEASURES | changes))


def forget_new_fields(folder):
    """Make study.json one of a version without these fields."""
    about = folder.read()
    for name in FORMER_VALUES:
        del about["plan"][name]
    write_checksummed(folder.study, about)


def used(folder):
    return {path.parent.name: read_checksummed(path)["token_embeddings"] for path in folder.path.glob("runs/*/*.json")
            if path.name == "result.json"}  # fmt: skip


@pytest.mark.extended
def test_a_study_of_an_earlier_version_is_resumed_with_factor_1(text, tmp_path):
    run_study(small(text, **FORMER), tmp_path / "study", LocalExecutor(1), "x", ignore)
    folder = StudyFolder(tmp_path / "study")
    forget_new_fields(folder)
    for seeds in (2, 3):
        # the command of that version, which says nothing of token embeddings; the second time study.json is new
        run_study(small(text, seeds=seeds), folder.path, LocalExecutor(1), "x", ignore)
    made = used(folder)
    assert len(made) == 3
    assert all(one == {"scale": 1.0, "std": 0.02} for one in made.values())
    with pytest.raises(OtherStudyError, match=r"embedding_scale: 1.0 -> 2.0"):
        run_study(small(text, embedding_scale=2.0), folder.path, LocalExecutor(1), "x", ignore)


@pytest.mark.extended
def test_results_say_what_each_run_had(text, tmp_path):
    plan = small(text, schemes=("sinusoidal", "learned"))
    folder = run_study(plan, tmp_path / "study", LocalExecutor(1), "x", ignore)
    assert used(folder) == {key: {"scale": 0.08, "std": 0.02} for key in ("sinusoidal-s0", "learned-s0")}
    model = Decoder.from_pretrained(str(folder.path / "runs" / "sinusoidal-s0" / "model"), local_files_only=True)
    assert (model.shape.embedding_scale, model.shape.embedding_std) == (0.08, 0.02)
    with pytest.raises(OtherStudyError, match=r"embedding_scale: None -> 1.0"):
        run_study(
            small(text, schemes=("sinusoidal", "learned"), **FORMER), folder.path, LocalExecutor(1), "x", ignore
        )


def test_a_grid_of_an_earlier_version_keeps_its_runs(tmp_path):
    values = [{"width": width} for width in (16, 32)]
    old = join_cells([(one, PLAN.model_copy(update={**one, **FORMER, "schemes": ("sinusoidal",)})) for one in values])
    new = join_cells([(one, PLAN.model_copy(update={**one, "schemes": ("sinusoidal",)})) for one in values])
    folder = StudyFolder(tmp_path)
    write_checksummed(folder.study, {"plan": old.model_dump(mode="json")})
    names = [run.name for run in old.runs()]
    forget_new_fields(folder)
    assert [run.name for run in folder.plan().runs()] == names
    assert [run.name for run in folder.resumed(new).runs()] == names
    assert [run.name for run in new.runs()] != names
