import pytest
from pydantic import ValidationError

from ordinate.study.plan import DEFAULT_SCHEMES, Plan, Run, differences
from ordinate.study.presets import TEXT_PRESETS, preset


def test_the_default_plan_compares_the_eight_schemes_once():
    assert [run.label for run in Plan().runs()] == list(DEFAULT_SCHEMES)
    assert Plan().longest_length == 1024


def test_seeds_are_the_outer_loop():
    runs = Plan(schemes=("rope", "alibi"), seeds=2).runs()
    assert [(run.label, run.seed) for run in runs] == [("rope", 0), ("alibi", 0), ("rope", 1), ("alibi", 1)]


def test_an_unknown_field_names_the_nearest():
    with pytest.raises(ValidationError, match=r"no field of a plan is named 'lenght'.*did you mean 'length'"):
        Plan(lenght=64)


@pytest.mark.parametrize(
    "changes", [{"length": 1}, {"steps": -1}, {"dropout": 1.0}, {"schemes": ()}, {"norm": "batch"}]
)
def test_invalid_values_are_rejected(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        Plan(**changes)


def test_a_plan_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Plan().length = 64


@pytest.mark.parametrize("name", list(TEXT_PRESETS))
def test_every_preset_is_a_plan(name):
    assert Plan(**TEXT_PRESETS[name])


def test_the_digest_changes_with_everything_but_how_often_checkpoints_are_written():
    assert Plan().digest() == Plan().digest()
    assert Plan(checkpoint_every=7).digest() == Plan().digest()
    assert (
        len({Plan(**change).digest() for change in ({}, {"steps": 5}, {"schemes": ("rope",)}, {"text": "docs"})}) == 4
    )


def run_of(label, seed):
    return Run(label=label, scheme="rope", mixer="softmax", seed=seed)


def test_names_of_runs_are_safe_and_differ():
    labels = ["rope", "rope:theta=5e5", "rope:theta=5e5,layout=half", "a/../b", "a/.../b", "x" * 200, "x" * 201]
    names = [run_of(label, 0).name for label in labels]
    assert names[:2] == ["rope-s0", "rope-theta=5e5-s0"]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 80 and "/" not in name for name in names)
    assert run_of("rope", 3).name == "rope-s3"


def test_differences_are_listed_key_by_key():
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ["b: 2 -> 3", "c: None -> 4"]


def test_each_kind_of_model_has_its_default_task():
    assert Plan(model="encoder").task == "masked"
    assert Plan(model="encoder", task="text").task == "text"
    assert Plan(model="vision").task == "images"


def test_a_preset_that_a_task_does_not_have_raises_an_error():
    with pytest.raises(ValueError, match="the task copy must have the preset; it has no gpu-1h; choose one of quick"):
        preset("gpu-1h", "copy", None)
    assert preset("gpu-1h", None, "encoder") == TEXT_PRESETS["gpu-1h"]
