import pytest
import torch

from ordinate.probing._probe import ProbeData
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.activations.names import HookFunctions
from ordinate.replications.papers.gu import (
    SINK,
    TOKENS,
    Gu,
    even_weight,
    mean_weights,
    planted,
    sink_shares,
    sinks_of,
)
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject
from ordinate.replications.runner import replicate


def test_a_planted_sink_is_counted_at_its_place():
    assert sink_shares(planted(0, 0))[0].tolist() == [0.25, 0, 0, 0]
    assert sink_shares(planted(2, 0))[0].tolist() == [0, 0, 0.25, 0]


def test_weights_are_means_over_the_queries_that_see_a_key():
    # all on oneself: each key is seen by all later queries, and gets weight from one
    found = mean_weights(torch.eye(4)[None, None])
    assert found[0, :, 0].tolist() == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1])
    assert even_weight(4) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_rows_that_do_not_sum_to_one_are_normalised():
    pattern = planted(0, 0)
    assert torch.allclose(mean_weights(pattern * 0.01), mean_weights(pattern))


def with_sink(place):
    """A random decoder whose second layer has one head that attends to this place."""

    def change(layer, weights):
        kept = weights.clone()
        if layer == 1:
            queries = torch.arange(weights.shape[-1])
            kept[:, 0] = torch.nn.functional.one_hot(queries.clamp(max=place), weights.shape[-1]).to(weights)
        return kept

    return InterventionAdapter(random_decoder(0), HookFunctions({"attention_pattern": change}))


def test_a_planted_head_of_a_model_is_a_sink_and_random_weights_have_none():
    ids = random_texts(0, 3, TOKENS)
    assert sinks_of(random_decoder(0), ids).sum() == 0
    assert sinks_of(with_sink(0), ids)[:, 0].tolist() == pytest.approx([1 / 16] * 3)
    assert sinks_of(with_sink(1), ids)[:, :2].tolist()[0] == pytest.approx([0, 1 / 16])


def test_claims_about_a_model_are_measured_on_one_with_a_sink_and_agree():
    texts = ProbeData(random_texts(0, 20, TOKENS), None, "random", natural=False)
    found = Gu().measure(Subject(with_sink(0), texts))
    for name in ("first token", "place, not token"):
        assert found[name].low == pytest.approx(1 / 16)
        assert found[name].null == 0


def test_even_attention_is_below_the_threshold_but_for_short_texts():
    assert even_weight(TOKENS) < 0.1
    assert even_weight(9) > SINK > even_weight(10)
    assert replicate("gu").headline == "agrees: 2"
