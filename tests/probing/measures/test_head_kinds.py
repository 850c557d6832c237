"""Kinds of heads: planted ones are found, and what only looks like them is not."""

import numpy as np
import pytest
import torch

from ordinate.ops.stats.permutation_tests import exact_sign_flip_test
from ordinate.probing._adapter import Hooks, NotApplicable
from ordinate.probing.activations.intervention import InterventionAdapter, patch
from ordinate.probing.measures.head_kinds import head_kinds, offset_name
from ordinate.testing.analytic_model import AnalyticModel


def planted(kind, share, ids):
    """A pattern with this share of attention on the token in question, the rest uniform over what is visible."""
    n = ids.shape[1]
    i, j = torch.arange(n)[:, None], torch.arange(n)
    seen = (j <= i).double()
    same = (ids[:, :, None] == ids[:, None, :]) & (j < i)
    on = {
        "previous token": (i - j == 1).expand(len(ids), -1, -1),
        "19 back": (i - j == 19).expand(len(ids), -1, -1),
        "first token": (j == 0).expand(len(ids), n, -1),
        "duplicate token": same,
        # the token after the earlier occurrence
        "induction": torch.nn.functional.pad(same, (1, 0))[..., :-1],
        # at the place of the induction target whether or not anything is repeated
        "at that place": (i - j == 31).expand(len(ids), -1, -1),
    }[kind].double()
    on = on / on.sum(-1, keepdim=True).clamp(min=1)
    there = on.sum(-1, keepdim=True) * share
    return there * on + (1 - there) * seen / seen.sum(-1, keepdim=True)


class Planted(InterventionAdapter):
    """A model whose head 0 of layer 0 has a planted pattern."""

    def __init__(self, kind, share):
        super().__init__(AnalyticModel(vocabulary=100, first_token=0), Hooks())
        self.kind, self.share = kind, share

    def forward(self, inputs, watch=None):
        pattern = planted(self.kind, self.share, inputs.ids)
        return patch(self.subject, "pattern", pattern[:, None], layers=0, heads=0).forward(inputs, watch)


@pytest.mark.parametrize("kind", ["previous token", "19 back", "first token", "duplicate token", "induction"])
def test_a_planted_head_is_found_and_no_other(kind):
    found = head_kinds(Planted(kind, 0.8))
    assert found.labels(0, 0) == [(kind, "yes")]
    assert [found.labels(layer, head) for layer, head in ((0, 1), (1, 0), (1, 1))] == [[], [], []]
    assert head_kinds(Planted(kind, 0.3)).labels(0, 0) == [(kind, "weakly")]


def test_attention_to_the_place_of_the_repeated_token_is_an_offset_and_no_induction():
    found = head_kinds(Planted("at that place", 0.9))
    assert found.labels(0, 0) == [("31 back", "yes")]
    induction = next(own for own in found.kinds if own.name == "induction")
    # without the null it would count as one
    assert induction.value[0, 0] > 0.8
    assert induction.null[0, 0] == pytest.approx(induction.value[0, 0])


def test_few_texts_do_not_tell_what_sixteen_do():
    class Sometimes(Planted):
        def forward(self, inputs, watch=None):
            pattern = planted("previous token", 0.9, inputs.ids)
            even = planted("previous token", 0.0, inputs.ids)
            chosen = (torch.arange(len(pattern)) % 2 == 0)[:, None, None]
            mixed = torch.where(chosen, pattern, even)
            return patch(self.subject, "pattern", mixed[:, None], layers=0, heads=0).forward(inputs, watch)

    few = head_kinds(Sometimes("previous token", 0.9), texts=4)
    assert few.unclear(0, 0) == ["offset"]
    assert head_kinds(Sometimes("previous token", 0.9)).labels(0, 0) == [("previous token", "weakly")]


def test_models_without_planted_heads_have_none():
    """Over random models; without the correction for the best of many offsets some would have one."""
    found = [head_kinds(AnalyticModel(position, seed=seed, vocabulary=100), seed=seed)
             for seed, position in enumerate(("none", "learned", "rope", "none"))]  # fmt: skip
    assert not any(own.labels(*place) for own in found for place in np.ndindex(2, 2))


def test_an_encoder_looks_ahead_too():
    class Ahead(Planted):
        def __init__(self):
            InterventionAdapter.__init__(self, AnalyticModel(vocabulary=100, causal=False), Hooks())

        def forward(self, inputs, watch=None):
            n = inputs.ids.shape[1]
            pattern = torch.eye(n, dtype=torch.float64).roll(5, 1)
            return patch(self.subject, "pattern", pattern[None, None], layers=1, heads=1).forward(inputs, watch)

    found = head_kinds(Ahead())
    assert found.labels(1, 1) == [("5 ahead", "yes")]


def test_the_table_has_a_row_for_each_head_and_kind():
    table = head_kinds(Planted("induction", 0.8), half=8).table()
    assert len(table.rows) == 2 * 2 * 4
    row = next(row for row in table.rows if row[0] == "0.0" and row[3] == "induction")
    assert row[4] == "yes"
    assert row[5] > 0.8 > row[6]


def test_short_models_and_images_are_refused():
    with pytest.raises(NotApplicable, match="kinds of heads need texts of 16 distinct tokens; plain has room for 11"):
        head_kinds(AnalyticModel(vocabulary=12, first_token=0))
    with pytest.raises(NotApplicable, match="need texts of 16 distinct tokens; plain has room for 10"):
        head_kinds(AnalyticModel(max_length=10))
    with pytest.raises(NotApplicable, match="plain takes images; kinds of heads are measured on texts"):
        head_kinds(AnalyticModel(vocabulary=0))
    with pytest.raises(ValueError, match="kinds of heads need 2 to 20 texts; got 1; give 16"):
        head_kinds(AnalyticModel(), texts=1)
    with pytest.raises(ValueError, match="half must be 8 or more; got 3; give more tokens"):
        head_kinds(AnalyticModel(), half=3)


def test_offsets_have_names():
    named = ["itself", "previous token", "next token", "7 back", "2 ahead"]
    assert [offset_name(x) for x in (0, 1, -1, 7, -2)] == named


def test_the_exact_sign_flip_test_counts_all_signs():
    values = np.array([[0.5, -1.0], [1.5, 2.0], [2.0, 0.25], [0.1, -3.0], [0.7, 0.0]])
    signs = np.array(np.meshgrid(*[[1, -1]] * 5)).reshape(5, -1).T
    expected = [(signs @ own >= own.sum() - 1e-12).mean() for own in values.T]
    assert exact_sign_flip_test(values) == pytest.approx(expected)
    assert exact_sign_flip_test(values[:, 0]) == pytest.approx(1 / 32)
    with pytest.raises(ValueError, match="all signs are tried of 1 to 20 texts; got 21; draw signs"):
        exact_sign_flip_test(np.zeros(21))


@pytest.mark.extended
def test_the_exact_sign_flip_test_has_its_error_rate():
    p = exact_sign_flip_test(np.random.default_rng(0).standard_t(3, (16, 20_000)))
    for rate in (0.01, 0.05, 0.2):
        assert abs((p <= rate).mean() - rate) < 4 * (rate / 20_000) ** 0.5


def test_a_window_is_no_offset():
    """Four keys share the attention: each has a quarter, far above uniform attention to all keys."""

    class Window(Planted):
        def forward(self, inputs, watch=None):
            n = inputs.ids.shape[1]
            near = torch.ones(n, n).tril().triu(-3).bool()
            zero = patch(self.subject, "attn_scores", torch.zeros_like, layers=0, heads=0)
            hidden = patch(zero, "attn_scores", lambda x: x.masked_fill(~near, -1e30), layers=0, heads=0)
            return hidden.forward(inputs, watch)

    found = head_kinds(Window("previous token", 0.0))
    offset = next(own for own in found.kinds if own.name == "offset")
    assert offset.value[0, 0] == pytest.approx(0.25, abs=0.01)
    assert offset.verdict(0, 0) == "no"


def test_the_best_of_many_offsets_is_no_effect_by_itself():
    """Heads that attend sharply by content: in each text some offset has much attention, in each another one."""
    excess = []
    for seed in range(4):
        model = AnalyticModel("none", seed=seed, vocabulary=100)
        for own in model.weights:
            object.__setattr__(own, "query", own.query * 20)
        found = head_kinds(model, texts=4, half=12, seed=seed)
        offset = next(own for own in found.kinds if own.name == "offset")
        excess.append((offset.value - offset.null).mean())
    assert abs(np.mean(excess)) < 0.03
