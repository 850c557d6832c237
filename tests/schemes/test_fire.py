import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.fire import Fire
from ordinate.testing import check_scheme

PLACES = [0, 1, 5, 40, 41, 600, 1500]


def published(scheme, limit, i, j, ahead="query"):
    # the formula of the paper for one pair, number by number
    c, L = scheme.c, (scheme.multiple * scheme.threshold).abs()
    place = max(i, j) if ahead == "max" else i
    L = L.sqrt() if limit == "sqrt" else L
    pick = min if limit == "min" else max
    length = pick(torch.tensor(float(place), dtype=torch.float64), L)
    length = max(length, torch.ones_like(length)) if limit == "min" else length
    share = torch.log((c * abs(i - j)).abs() + 1) / (torch.log((c * length).abs() + 1) + 1e-6)
    hidden = []
    for unit in range(scheme.inner.out_features):
        x = scheme.inner.weight[unit, 0] * share
        x = x if scheme.inner.bias is None else x + scheme.inner.bias[unit]
        hidden.append(x if x > 0 else 0 * x)
    heads = []
    for head in range(scheme.outer.out_features):
        out = sum(scheme.outer.weight[head, unit] * x for unit, x in enumerate(hidden))
        heads.append(out if scheme.outer.bias is None else out + scheme.outer.bias[head])
    return heads


@pytest.mark.parametrize(
    ("limit", "ahead", "biases", "causal"),
    [
        ("max", "query", True, True),
        ("max", "query", False, False),
        ("sqrt", "query", True, True),
        ("min", "query", True, True),
        ("max", "max", True, False),
    ],
)
def test_bias_and_gradients_are_those_of_the_formula(limit, ahead, biases, causal):
    scheme = Fire(
        heads=2, hidden=5, threshold=100, threshold_mode=limit, future_divisor=ahead, biases=biases
    ).double()
    bias = scheme.bias(Geometry.from_positions(torch.tensor(PLACES)[None, :, None], causal=causal))
    assert bias.dtype == torch.float64
    weights, total, other = torch.randn_like(bias), 0, 0
    for i, x in enumerate(PLACES):
        for j, y in enumerate(PLACES):
            if causal and j > i:
                continue
            for h, exact in enumerate(published(scheme, limit, x, y, ahead)):
                assert abs((bias[0, h, i, j] - exact).item()) <= 1e-12 * max(1, abs(exact.item()))
                total = total + weights[0, h, i, j] * exact
                other = other + weights[0, h, i, j] * bias[0, h, i, j]
    wanted = torch.autograd.grad(total, list(scheme.parameters()))
    got = torch.autograd.grad(other, list(scheme.parameters()))
    for (name, _), one, exact in zip(scheme.named_parameters(), got, wanted, strict=True):
        assert exact.abs().max() > 0, name
        assert (one - exact).abs().max() <= 1e-12 * max(1, exact.abs().max()), name


def test_it_is_initialised_as_in_the_paper():
    scheme = Fire(heads=3)
    assert math.isclose(scheme.c.item(), 0.1, rel_tol=1e-7)
    assert scheme.multiple.item() == 1
    assert scheme.threshold == 512
    assert scheme.inner.weight.shape == (32, 1)
    assert scheme.outer.weight.shape == (3, 32)
    assert scheme.inner.bias.shape == (32,)
    assert scheme.outer.bias.shape == (3,)


def shares(scheme, where):
    # with an inner unit that passes its input on, and an outer one too, the bias is the share itself
    with torch.no_grad():
        for layer in (scheme.inner, scheme.outer):
            layer.weight.fill_(1.0)
            layer.bias.fill_(0.0)
    return scheme.bias(where)[0, 0]


def test_the_share_stays_between_0_and_1_however_long_the_text():
    far = Geometry.from_positions(torch.tensor([0, 1, 10, 10_000, 10_000_000])[None, :, None])
    share = shares(Fire(heads=1, hidden=1).double(), far).tril()
    assert share.min() >= 0
    assert share.max() <= 1
    assert share[-1, 0] > 0.999999


def test_keys_ahead_pass_1_unless_divided_by_the_farther_place():
    far = Geometry.from_positions(torch.tensor([0, 1, 10, 10_000])[None, :, None], causal=False)
    assert shares(Fire(heads=1, hidden=1).double(), far).max() > 1
    farther = shares(Fire(heads=1, hidden=1, future_divisor="max").double(), far)
    assert farther.max() <= 1
    assert torch.equal(farther, farther.T)


def test_seeing_ahead_makes_no_difference_behind():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        one = Fire(heads=2)
        torch.manual_seed(1)
        other = Fire(heads=2, future_divisor="max")
    where = Geometry.causal(700)
    assert one.bias(where).tril().equal(other.bias(where).tril())


def test_below_the_threshold_only_the_distance_counts():
    bias = Fire(heads=1).bias(Geometry.causal(600))[0, 0]
    assert torch.equal(bias[100, 90:101], bias[500, 490:501])
    assert not torch.equal(bias[100, 90:101], bias[599, 589:600])


def test_a_minimum_never_divides_by_nothing():
    share = shares(Fire(heads=1, hidden=1, threshold_mode="min").double(), Geometry.full(4))
    assert math.isclose(share[0, 3].item(), math.log(1.3) / (math.log(1.1) + 1e-6), rel_tol=1e-7)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold_mode": "mean"}, "no threshold_mode of fire is named 'mean'; there are: max, min, sqrt"),
        ({"future_divisor": "key"}, "no future_divisor of fire is named 'key'; there are: max, query"),
        ({"hidden": 0}, "hidden must be above zero; got 0"),
        ({"heads": 0}, "heads must be above zero; got 0"),
        ({"c": 0.0}, "c must be above zero; got 0.0"),
        ({"threshold": -1.0}, "threshold must be above zero; got -1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Fire(**{"heads": 2} | options)


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [
        {"threshold_mode": "sqrt"},
        {"threshold_mode": "min", "threshold": 4},
        {"future_divisor": "max"},
        {"biases": False},
        {"hidden": 7, "threshold": 20},
    ],
    ids=str,
)
def test_every_option_keeps_the_contract(options):
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Fire, **options) if one.message]
    assert not broken, "\n".join(broken)
