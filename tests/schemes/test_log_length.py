import math

import pytest
import torch

from ordinate import Geometry
from ordinate.attention._attend import attend
from ordinate.schemes.log_length import LogLength
from ordinate.testing import assert_as_close, check_scheme

# what a query that sees n tokens is multiplied with, by name; L = 8, s by head
FACTORS = {
    "su": lambda n, s: math.log(n) / math.log(8),
    "qwen": lambda n, s: math.log(n, 8) if n > 8 else 1.0,
    "plain": lambda n, s: math.log(n),
    "ssmax": lambda n, s: s * math.log(n),
    "llama4": lambda n, s: math.log(math.floor(n / 8) + 1) * 0.1 + 1,
    "ministral": lambda n, s: math.log(math.floor((n - 1) / 8) + 1) * 0.1 + 1,
}
BOUNDED = ("su", "qwen", "llama4", "ministral")


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def column(positions):
    return torch.tensor(positions)[None, :, None]


@pytest.mark.parametrize("form", FACTORS)
def test_each_query_is_scaled_by_what_it_sees_forward_and_backward(form):
    options = {"trained_length": 8} if form in BOUNDED else {}
    scheme, positions = LogLength(heads=3, form=form, **options).double(), [0, 1, 6, 7, 8, 15, 5000]
    sharpness = [0.168] * 3
    if form == "ssmax":
        with torch.no_grad():
            scheme.sharpness.copy_(torch.tensor([0.1, 1.0, -0.5]))
        sharpness = scheme.sharpness
    q, weights = drawn(2, 3, 7, 5).requires_grad_(), drawn(2, 3, 7, 5, seed=1)
    rows = [
        torch.stack([q[:, h, i] * FACTORS[form](p + 1, sharpness[h]) for i, p in enumerate(positions)], 1)
        for h in range(3)
    ]
    out, exact, leaves = scheme.encode_query(q, column(positions)), torch.stack(rows, 1), (q, *scheme.parameters())
    assert_as_close(out, exact, exact)
    slopes = torch.autograd.grad((out * weights).sum(), leaves)
    for slope, other in zip(slopes, torch.autograd.grad((exact * weights).sum(), leaves), strict=True):
        assert_as_close(slope, other, other, what="gradient")


def test_keys_stay_as_they_are():
    k = drawn(1, 2, 3, 4)
    assert LogLength(heads=2).encode_key(k, column([0, 1, 9])) is k
    assert LogLength(heads=2).hooks == ("encode_query",)


def test_golden_factors():
    def factors(positions, **options):
        return LogLength(heads=1, **options).factor(column(positions)).flatten().tolist()

    assert factors([0, 7, 511, 2**18 - 1]) == pytest.approx([0, 1 / 3, 1, 2])
    assert factors([0, 7, 511, 2**18 - 1], form="qwen") == pytest.approx([1, 1, 1, 2])
    assert factors([0, 8190, 8191, 16_383], form="llama4") == pytest.approx(
        [1, 1, 1.0693147180559945, 1.1098612288668109]
    )
    assert factors([0, 1, 2**24], form="plain") == pytest.approx([0, math.log(2), math.log(2**24 + 1)], abs=1e-15)


def test_the_initial_sharpness_makes_the_mean_factor_one():
    mean = LogLength(heads=1, form="ssmax").factor(column(list(range(1024)))).mean().item()
    assert mean == pytest.approx(1, abs=4e-3)
    assert LogLength(heads=2, form="ssmax", init_scale=0.43).sharpness.tolist() == pytest.approx([0.43, 0.43])


def test_it_is_scalable_softmax():
    # n^(s z_i) / sum of n^(s z_j) over the n tokens seen
    scheme = LogLength(heads=1, form="ssmax", init_scale=0.5).double()
    q, k, v = drawn(1, 1, 6, 4), drawn(1, 1, 6, 4, seed=1), drawn(1, 1, 6, 4, seed=2)
    at = scheme.at(Geometry.causal(6))
    out = attend(q, k, v, at)
    for i in range(6):
        n = i + 1
        powers = torch.stack([n ** (0.5 * (q[0, 0, i] @ k[0, 0, j]) / 2) for j in range(n)])
        exact = (powers / powers.sum()) @ v[0, 0, :n]
        assert torch.allclose(out[0, 0, i], exact, rtol=0, atol=1e-12)


def test_attention_keeps_its_sharpness_as_texts_grow():
    # scores with one spread: entropy of plain attention grows with log n, scaled it stays nearly the same
    scores = 3 * drawn(4000, seed=3)

    def entropy(n, factor):
        weights = (scores[:n] * factor).softmax(0)
        return -(weights * weights.log()).sum().item()

    scheme = LogLength(heads=1, trained_length=64)
    long, short = (scheme.factor(column([n - 1])).item() for n in (4000, 64))
    assert short == pytest.approx(1)
    plain_growth, growth = entropy(4000, 1) - entropy(64, 1), entropy(4000, long) - entropy(64, short)
    assert growth < plain_growth / 2


def test_only_a_trained_form_needs_an_instance_for_each_layer():
    for form in FACTORS:
        scheme = LogLength(heads=2, form=form)
        assert scheme.per_layer == (form == "ssmax") == bool(list(scheme.parameters()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "plain", "trained_length": 9}, "trained_length is not used by this form; got 9 with form='plain'"),
        ({"form": "ssmax", "trained_length": 9}, "trained_length is not used by this form"),
        ({"init_scale": 0.4}, "init_scale is not used by this form; got 0.4 with form='su', where it has no effect"),
        ({"beta": 0.3}, "beta is not used by this form; got 0.3 with form='su', where it has no effect"),
        ({"form": "ministral", "beta": math.inf}, "beta must be a finite number; got inf"),
        ({"trained_length": 1}, "trained_length must be above 1; got 1; give the training length"),
        ({"heads": 0}, "heads must be above zero"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LogLength(**{"heads": 2} | options)


def test_beta_is_the_factor_of_the_logarithm():
    grown = LogLength(heads=1, form="ministral", trained_length=4, beta=0.7).factor(column([3, 4, 11, 12]))
    expected = [1 + 0.7 * math.log(1 + steps) for steps in (0, 1, 2, 3)]
    assert grown.flatten().tolist() == pytest.approx(expected, abs=1e-15)
    # a mutant: the position is counted from one
    other = LogLength(heads=1, form="llama4", trained_length=4, beta=0.7).factor(column([3, 4, 11, 12]))
    assert not grown.equal(other)


def test_positions_below_zero_are_refused():
    with pytest.raises(ValueError, match="log_length counts tokens from position 0; got -1; shift the positions"):
        LogLength(heads=2).at(Geometry.from_positions(column([0, -1])))


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="LogLength takes positions with 1 axis; got 2 axes"):
        LogLength(heads=2).at(Geometry.grid(2, 2))


@pytest.mark.extended
@pytest.mark.parametrize("form", [form for form in FACTORS if form != "su"])
def test_every_form_keeps_the_contract(form):
    assert not [outcome for outcome in check_scheme(LogLength, form=form) if outcome.message]


@pytest.mark.extended
def test_it_keeps_the_contract_of_a_short_training():
    assert not [outcome for outcome in check_scheme(LogLength, form="llama4", trained_length=8) if outcome.message]
