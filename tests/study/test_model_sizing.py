from itertools import pairwise

import pytest

from ordinate.models.decoder import Decoder
from ordinate.study import model_sizing
from ordinate.study.data_source import DataSizes
from ordinate.study.model_sizing import ModelSizing, count_parameters, parameter_counts, shape_of
from ordinate.study.plan import DEFAULT_SCHEMES, Plan, Run

PLAN = Plan(width=32, layers=2, heads=4, length=16)


def run_of(scheme, mixer="softmax"):
    return Run(label=scheme, scheme=scheme, mixer=mixer, seed=0)


@pytest.mark.parametrize("scheme", DEFAULT_SCHEMES)
def test_every_scheme_has_as_many_trainable_parameters_as_none(scheme):
    run = run_of(scheme)
    shape = shape_of(PLAN, run, 256)
    said = parameter_counts(PLAN, run, shape, Decoder(shape))
    goal = count_parameters(PLAN, shape_of(PLAN, run_of("none"), 256))
    column = 2 * PLAN.width * PLAN.layers
    assert abs(said["trained"] - goal) <= column / 2
    assert said["total"] == sum(p.numel() for p in Decoder(shape).parameters())


@pytest.mark.parametrize("match", ["params", "shape"])
def test_the_model_of_each_distinct_shape_is_built_once(monkeypatch, match):
    built = []

    def count(plan, shape):
        built.append(shape)
        return count_parameters(plan, shape)

    monkeypatch.setattr(model_sizing, "count_parameters", count)
    sizing = ModelSizing(PLAN.model_copy(update={"match": match}), 256)
    shapes = [sizing.shape_of(run_of(scheme)) for scheme in (*DEFAULT_SCHEMES, *DEFAULT_SCHEMES)]
    assert len(built) == len(set(built)) == len(DEFAULT_SCHEMES) + (2 if match == "params" else 0)
    assert shapes == [shape_of(sizing.plan, run_of(scheme), 256) for scheme in DEFAULT_SCHEMES] * 2


@pytest.mark.parametrize(
    ("scheme", "mixer"), [("none", "softmax"), ("learned", "softmax"), ("shaw", "softmax"), ("none", "lstm")]
)
def test_a_feedforward_column_has_as_many_parameters_in_every_model(scheme, mixer):
    shapes = [
        model_sizing._shape(PLAN, run_of(scheme, mixer), DataSizes({"vocabulary": 9}, 7, 7), 7, n) for n in (1, 2, 33)
    ]
    counts = [count_parameters(PLAN, shape) for shape in shapes]
    assert [after - before for before, after in pairwise(counts)] == [2 * 32 * 2, 31 * 2 * 32 * 2]


def test_embedding_rows_beyond_the_training_length_are_reported_and_not_counted():
    run = run_of("learned")
    shape = shape_of(PLAN, run, 256)
    said = parameter_counts(PLAN, run, shape, Decoder(shape))
    assert said["total"] - said["trained"] == (PLAN.longest_length - PLAN.length) * PLAN.width
    assert "serve lengths beyond the trained one only" in said["note"]
    assert shape.hidden < 4 * PLAN.width


def test_shapes_stay_equal_where_shapes_are_matched():
    plan = PLAN.model_copy(update={"match": "shape"})
    assert shape_of(plan, run_of("learned"), 256).hidden_width == 4 * PLAN.width


def test_a_scheme_that_does_not_fit_is_rejected():
    plan = PLAN.model_copy(update={"length": 2048})
    with pytest.raises(ValueError, match="learned alone has more than the whole reference model"):
        shape_of(plan, run_of("learned"), 256)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("ropee", "did you mean 'rope'"),
        ("rope:tetha=3", "did you mean 'theta'"),
        ("rope:theta=big", "option theta of Rope must be float; got 'big'"),
    ],
)
def test_an_unknown_scheme_or_option_names_the_nearest(label, message):
    with pytest.raises(ValueError, match=message):
        shape_of(PLAN, run_of(label), 256)


def test_an_odd_head_width_is_refused_before_anything_is_trained():
    with pytest.raises(ValueError, match="rope needs an even head width; got 7"):
        shape_of(Plan(width=28, heads=4), run_of("rope"), 256)


def test_an_embedding_table_covers_the_longest_sequences_of_a_task():
    from ordinate.study.data_source import source_of

    def longest(plan):
        return source_of(plan).sizes(plan, 256).longest_length

    # twice as many pairs are more than twice as many tokens
    plan = Plan(
        task="recall:pairs=16", length=31, eval_length_multiples=(1, 2), width=32, layers=1, schemes=("learned",)
    )
    assert longest(plan) == 63
    assert shape_of(plan, plan.runs()[0], vocabulary=20).max_length == 63
    assert longest(Plan(task="text", length=31, eval_length_multiples=(1, 2))) == 62
    assert longest(Plan(task="listops:length=32", length=32, eval_length_multiples=(1, 2))) >= 32


def test_mixers_without_key_and_value_heads_are_compared_as_they_are():
    plan = PLAN.model_copy(update={"kv_heads": 2})
    given = {
        mixer: shape_of(plan, run_of("none", mixer), 256).kv_heads for mixer in ("softmax", "fox", "softmax,gru")
    }
    assert given == {"softmax": 2, "fox": None, "softmax,gru": 2}
    assert shape_of(plan, run_of("none", "softmax:kv_heads=1"), 256).kv_heads is None
