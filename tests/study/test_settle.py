import sys

import pytest

import ordinate.mixers
from ordinate.study.plan import EIGHT, Plan
from ordinate.study.settle import settle

SIZES = {"width": 32, "layers": 1, "heads": 2, "length": 16}
MIXER = """
import torch
from ordinate.mixer import Mixer

class Made(Mixer):
    '''{name}.'''

    honours = frozenset({{"place", "embed"}})
    equivariant = False
    usual_scheme = "sinusoidal"
    {line}

    def __init__(self, *, width: int, columns: int = 4) -> None:
        super().__init__()
        self.inner, self.out = torch.nn.Linear(width, columns), torch.nn.Linear(columns, width)

    def forward(self, x, at, state=None):
        return self.out(self.inner(x)), None
"""


@pytest.fixture
def mixers(tmp_path, monkeypatch):
    """Three more mixers beside those that there are, and softmax alone of these."""
    lines = {"zz_good": "streams = True", "zz_blind": "causal = False", "zz_leaky": "exact_causal = False"}
    for name, line in lines.items():
        (tmp_path / f"{name}.py").write_text(MIXER.format(name=name, line=line))
    folder = [*ordinate.mixers.__path__, str(tmp_path)]
    monkeypatch.setattr(ordinate.mixers, "__path__", folder)
    monkeypatch.setattr(ordinate.mixers.__spec__, "submodule_search_locations", folder)
    yield lines
    for name in lines:
        sys.modules.pop(f"ordinate.mixers.{name}", None)


def test_a_study_of_nothing_named_compares_the_eight():
    plan = settle(Plan(**SIZES))
    assert plan.schemes == EIGHT
    assert settle(plan) == plan


def test_each_mixer_has_its_usual_scheme(mixers):
    plan = settle(Plan(**SIZES, mixers=("softmax", "zz_good:columns=8")))
    assert plan.compared() == [
        ("softmax", "rope", "softmax"),
        ("zz_good:columns=8", "sinusoidal", "zz_good:columns=8"),
    ]
    assert [run.name for run in plan.runs()] == ["softmax-s0", "zz_good-columns=8-s0"]
    assert settle(plan) == plan


def test_mixers_and_schemes_make_every_pair(mixers):
    plan = settle(Plan(**SIZES, mixers=("softmax", "zz_good"), schemes=("none", "sinusoidal"), seeds=2))
    assert [run.label for run in plan.runs()][:4] == [
        "softmax none",
        "softmax sinusoidal",
        "zz_good none",
        "zz_good sinusoidal",
    ]
    assert len(plan.runs()) == 8


def test_a_pair_whose_hooks_are_not_honoured_is_refused_before_training(mixers):
    with pytest.raises(ValueError, match="it ignores encode_key, encode_query of Rope"):
        settle(Plan(**SIZES, mixers=("softmax", "zz_good"), schemes=("rope",)))
    with pytest.raises(ValueError, match="it ignores encode_key, encode_query of Rope"):
        settle(Plan(**SIZES, equal="shape", mixers=("zz_good",), schemes=("rope",)))


def test_all_leaves_out_what_cannot_be_trained_and_says_why(mixers):
    told = []
    plan = settle(Plan(**SIZES, mixers=("all",)), told.append)
    assert {"softmax", "zz_good"} <= set(plan.mixers)
    assert not {"zz_blind", "zz_leaky", "all"} & set(plan.mixers)
    assert "left out: zz_blind: it has no form that reads from left to right" in told
    assert "left out: zz_leaky: as it is by default, it lets later tokens through" in told


def test_others_can_stand_beside_all(mixers):
    plan = settle(Plan(**SIZES, mixers=("all", "zz_good:columns=8")))
    assert plan.mixers[-1] == "zz_good:columns=8"
    assert len(set(plan.mixers)) == len(plan.mixers)


def test_a_mixer_that_cannot_hide_the_future_is_refused_by_name(mixers):
    with pytest.raises(
        ValueError, match="a model that reads from left to right hides later tokens; Made has no such"
    ):
        settle(Plan(**SIZES, mixers=("zz_blind",)))


def test_mixers_train_as_many_parameters_as_softmax(mixers):
    from ordinate.study.model import count, shape_of

    plan = settle(Plan(**SIZES, mixers=("softmax", "zz_good")))
    softmax, good = (shape_of(plan, run, 256) for run in plan.runs())
    assert abs(count(plan, softmax) - count(plan, good)) <= 2 * plan.width
    assert good.hidden_width > softmax.hidden_width


def test_the_length_of_a_task_is_its_own():
    plan = settle(Plan(task="copy:count=5", schemes=("none",)))
    assert plan.length == 10
    assert settle(plan) == plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "kopy"}, "no task is named 'kopy'.*did you mean 'copy'"),
        ({"task": "copy:cuont=5"}, "did you mean 'count'"),
        ({"task": "copy:count=0"}, "copy needs something to copy"),
        ({"task": "copy", "length": 64}, "copy makes its own sequences; got --length; leave them out"),
        ({"task": "copy", "text": "docs", "sample_tokens": 3}, "got --text, --sample-tokens"),
        ({"mixers": ("softmaxx",)}, "did you mean 'softmax'"),
        ({"mixers": ("softmax:heat=3",)}, "no option of Softmax is named 'heat'"),
        ({"mixers": ("softmax", "softmax")}, "each scheme and mixer is compared once; got softmax, softmax"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        settle(Plan(**changes))


def test_a_task_of_another_kind_of_model_is_refused():
    with pytest.raises(ValueError, match="copy is learned by a model of the kind decoder; got --model encoder"):
        settle(Plan(task="copy", model="encoder"))


def test_an_option_of_another_task_is_refused_for_a_text_too():
    with pytest.raises(ValueError, match="text goes on with a text; got --fresh; leave them out"):
        settle(Plan(fresh=20))
