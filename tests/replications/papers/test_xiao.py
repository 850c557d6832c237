import math

import torch

from ordinate.probing._adapter import ForwardOutput, ModelAdapter
from ordinate.probing._probe import ProbeData
from ordinate.replications.papers.xiao import Xiao, cache, cache_losses, eviction_errors
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject
from ordinate.replications.runner import replicate

TOKENS, V = 33, 16


class Planted(ModelAdapter):
    """Knows each next token if it finds the first token in its cache, otherwise nothing: as with a sink."""

    priority = 0
    info = random_decoder(0).info

    def unsupported_reason(self, model):
        return None

    def token_table(self):
        raise AssertionError

    def forward(self, inputs, watch=None):
        n = inputs.ids.shape[1]
        mask = torch.ones(n, n).tril().bool()[None] if inputs.mask is None else inputs.mask
        sure = torch.nn.functional.one_hot((inputs.ids + 1) % V, V) * 100.0
        return ForwardOutput(inputs.ids[..., None].float(), sure * mask[:, :, :1])


def counting():
    return (torch.arange(20)[:, None] + torch.arange(TOKENS)) % V


def test_a_planted_sink_breaks_the_window_and_four_first_tokens_mend_it():
    losses = {name: float(nats.mean()) for name, nats in cache_losses(Planted(), counting()).items()}
    assert abs(losses["window"] - math.log(V)) < 1e-5
    assert abs(losses["others"] - math.log(V)) < 1e-5
    assert losses["first"] < 1e-5
    # alone, the window has a first token of its own
    assert losses["again"] < 1e-5


def test_all_claims_about_a_model_agree_on_the_planted_one_and_not_on_random_weights():
    found = Xiao().measure(Subject(Planted(), ProbeData(counting(), None, "planted", natural=False)))
    gaps = {name: one.value for name, one in found.items() if name != "denominator"}
    assert {name: round(gap / math.log(V), 3) for name, gap in gaps.items()} == {
        "window breaks": 1,
        "four tokens": -1,
        "first, not others": -1,
    }
    texts = ProbeData(random_texts(0, 8, TOKENS), None, "random", natural=False)
    random = Xiao().measure(Subject(random_decoder(0, "rope"), texts))
    assert all(abs(random[name].value) < 0.1 for name in gaps)


def test_each_cache_holds_as_many_tokens_and_none_of_the_future():
    for start in (0, 4):
        held = cache(32, 4, start, 4)
        assert held[16:].sum(1).tolist() == [8] * 16
        assert not held.triu(1).any()
    assert cache(32, 8, 0, 0)[16:].sum(1).tolist() == [8] * 16


def test_without_a_token_the_other_weights_grow_by_what_it_had():
    error, unchanged = eviction_errors(random_decoder(0), random_texts(0, 2, 9))
    assert error < 1e-5 < 0.05 < unchanged
    assert replicate("xiao").headline == "agrees: 1"
