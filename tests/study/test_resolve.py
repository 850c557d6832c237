import sys

import pytest

import ordinate.mixers
from ordinate.study.plan import DEFAULT_SCHEMES, Plan
from ordinate.study.resolve import resolve

SIZES = {"width": 32, "layers": 1, "heads": 2, "length": 16}
MIXER = """
import torch
from ordinate.mixers._mixer import Mixer

class Made(Mixer):
    '''{name}.'''

    supported_hooks = frozenset({{"remap_positions", "embed"}})
    permutation_equivariant = False
    default_scheme = "sinusoidal"
    {line}

    def __init__(self, *, width: int, columns: int = 4) -> None:
        super().__init__()
        self.inner, self.out = torch.nn.Linear(width, columns), torch.nn.Linear(columns, width)

    def forward(self, x, at, state=None):
        return self.out(self.inner(x)), None
"""


@pytest.fixture
def mixers(tmp_path, monkeypatch):
    """Add three test mixers to the catalog, which otherwise has softmax only."""
    lines = {"zz_good": "streams = True", "zz_blind": "causal = False", "zz_leaky": "strictly_causal = False"}
    for name, line in lines.items():
        (tmp_path / f"{name}.py").write_text(MIXER.format(name=name, line=line))
    folder = [*ordinate.mixers.__path__, str(tmp_path)]
    monkeypatch.setattr(ordinate.mixers, "__path__", folder)
    monkeypatch.setattr(ordinate.mixers.__spec__, "submodule_search_locations", folder)
    yield lines
    for name in lines:
        sys.modules.pop(f"ordinate.mixers.{name}", None)


def test_a_study_without_schemes_and_mixers_compares_the_default_eight():
    plan = resolve(Plan(**SIZES))
    assert plan.schemes == DEFAULT_SCHEMES
    assert resolve(plan) == plan


def test_each_mixer_has_its_default_scheme(mixers):
    plan = resolve(Plan(**SIZES, mixers=("softmax", "zz_good:columns=8")))
    assert plan.arms() == [
        ("softmax", "rope", "softmax"),
        ("zz_good:columns=8", "sinusoidal", "zz_good:columns=8"),
    ]
    assert [run.name for run in plan.runs()] == ["softmax-s0", "zz_good-columns=8-s0"]
    assert resolve(plan) == plan


def test_mixers_and_schemes_give_every_pair(mixers):
    plan = resolve(Plan(**SIZES, mixers=("softmax", "zz_good"), schemes=("none", "sinusoidal"), seeds=2))
    assert [run.label for run in plan.runs()][:4] == [
        "softmax none",
        "softmax sinusoidal",
        "zz_good none",
        "zz_good sinusoidal",
    ]
    assert len(plan.runs()) == 8


def test_a_pair_with_unsupported_hooks_is_rejected_before_training(mixers):
    with pytest.raises(ValueError, match="hooks 'encode_key', 'encode_query', used by scheme 'rope'"):
        resolve(Plan(**SIZES, mixers=("softmax", "zz_good"), schemes=("rope",)))
    with pytest.raises(ValueError, match="hooks 'encode_key', 'encode_query', used by scheme 'rope'"):
        resolve(Plan(**SIZES, match="shape", mixers=("zz_good",), schemes=("rope",)))


def test_all_leaves_out_mixers_that_cannot_be_trained_with_the_reason(mixers):
    told = []
    plan = resolve(Plan(**SIZES, mixers=("all",)), told.append)
    assert {"softmax", "zz_good"} <= set(plan.mixers)
    assert not {"zz_blind", "zz_leaky", "all"} & set(plan.mixers)
    told = [one.message for one in told]
    assert "left out: zz_blind: it has no causal form" in told
    assert "left out: zz_leaky: with default options it leaks information from later tokens" in told


def test_more_mixers_can_be_listed_beside_all(mixers):
    plan = resolve(Plan(**SIZES, mixers=("all", "zz_good:columns=8")))
    assert plan.mixers[-1] == "zz_good:columns=8"
    assert len(set(plan.mixers)) == len(plan.mixers)


def test_a_mixer_without_a_causal_form_is_rejected_by_name(mixers):
    with pytest.raises(
        ValueError, match="a causal model needs a mixer with a causal form; mixer 'zz_blind' has none"
    ):
        resolve(Plan(**SIZES, mixers=("zz_blind",)))


def test_mixers_have_as_many_trainable_parameters_as_softmax(mixers):
    from ordinate.study.model_sizing import count_parameters, shape_of

    plan = resolve(Plan(**SIZES, mixers=("softmax", "zz_good")))
    softmax, good = (shape_of(plan, run, 256) for run in plan.runs())
    assert abs(count_parameters(plan, softmax) - count_parameters(plan, good)) <= 2 * plan.width
    assert good.hidden_width > softmax.hidden_width


def test_the_length_of_a_task_is_its_own():
    plan = resolve(Plan(task="copy:count=5", schemes=("none",)))
    assert plan.length == 10
    assert resolve(plan) == plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "kopy"}, "no task is named 'kopy'.*did you mean 'copy'"),
        ({"task": "copy:cuont=5"}, "did you mean 'count'"),
        ({"task": "copy:count=0"}, "copy needs something to copy"),
        ({"task": "copy", "length": 64}, "task copy generates its sequences; got --length; leave them out"),
        ({"task": "copy", "text": "docs", "generated_tokens": 3}, "got --text, --generated-tokens"),
        ({"mixers": ("softmaxx",)}, "did you mean 'softmax'"),
        ({"mixers": ("softmax:heat=3",)}, "no option of Softmax is named 'heat'"),
        (
            {"mixers": ("fox", "gru"), "kv_heads": 2},
            "--kv-heads needs a mixer with key and value heads, and without .* of its own; got 2 for fox, gru; leave",
        ),
        ({"mixers": ("softmax", "softmax")}, "schemes and mixers must differ from each other; got softmax, softmax"),
    ],
)
def test_invalid_plans_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(Plan(**changes))


def test_a_task_of_another_kind_of_model_is_rejected():
    with pytest.raises(ValueError, match="task copy needs a model of kind decoder; got --model encoder"):
        resolve(Plan(task="copy", model="encoder"))


def test_an_option_of_another_task_is_refused_for_a_text_too():
    with pytest.raises(
        ValueError, match="task text predicts the next token of a text; got --task-samples; leave them out"
    ):
        resolve(Plan(task_samples=20))


def test_how_many_checkpoints_are_kept_and_their_size_are_said_beforehand():
    seen = []
    plan = Plan(**SIZES, schemes=("none", "rope"), steps=20, keep_checkpoints=(0, 5))
    assert resolve(plan, seen.append).digest() == resolve(Plan(**SIZES, schemes=("none", "rope"), steps=20)).digest()
    said = "2 checkpoints of each run are kept, 4 in all, at most 1 MB"
    assert [one.message for one in seen] == [said]
    with pytest.raises(ValueError, match="--keep-checkpoints takes steps of the training, 0 to 20; got 21; leave it"):
        resolve(plan.model_copy(update={"keep_checkpoints": (0, 21)}))


def test_gradient_checkpointing_changes_no_result_and_needs_training(monkeypatch):
    plan = Plan(**SIZES, schemes=("rope",))
    wanted = plan.model_copy(update={"gradient_checkpointing": True})
    assert resolve(wanted).digest() == resolve(plan).digest()
    monkeypatch.setattr("ordinate.study.resolve.resolve_base", lambda plan: plan)
    with pytest.raises(ValueError, match="--gradient-checkpointing needs training steps; got --steps 0"):
        resolve(wanted.model_copy(update={"steps": 0}))
