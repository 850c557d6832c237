import math

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.schemes.kerple import Kerple
from ordinate.testing import check_scheme

PLACES = [0, 1, 5, 40, 41, 200, 1500]


def placed(causal=True):
    return Geometry.from_positions(torch.tensor(PLACES)[None, :, None], causal=causal)


def bounded(number, most=math.inf):
    return min(max(number, 0.01), most)


def published(form, d, p, a, q):
    # the kernels of the paper, with the bounds of its code, for one head and one distance
    if form == "power":
        return -bounded(a) * d ** bounded(p, 2)
    if form == "log_power":
        return -bounded(p) * math.log(1 + bounded(a) * d ** bounded(q, 2))
    return -bounded(p) * math.log(1 + bounded(a) * d)


def derivatives(form, d, p, a, q):
    # of the three formulas by hand, by each number
    grown = math.log(d) if d else 0.0
    if form == "power":
        return {"p": -a * d**p * grown, "a": -(d**p)}
    if form == "log_power":
        inner = 1 + a * d**q
        return {"p": -math.log(inner), "a": -p * d**q / inner, "q": -p * a * d**q * grown / inner}
    return {"p": -math.log(1 + a * d), "a": -p * d / (1 + a * d)}


@pytest.mark.parametrize("form", ["log", "power", "log_power"])
@pytest.mark.parametrize("causal", [True, False])
def test_bias_and_gradients_are_those_of_the_formula(form, causal):
    scheme = Kerple(heads=3, form=form).double()
    numbers = {name: value.tolist() for name, value in scheme.named_parameters()}
    bias = scheme.bias(placed(causal))
    weights = torch.randn_like(bias)
    slopes = {name: [0.0] * 3 for name in numbers}
    for h in range(3):
        p, a, q = numbers["p"][h], numbers["a"][h], numbers.get("q", [1] * 3)[h]
        for i, x in enumerate(PLACES):
            for j, y in enumerate(PLACES):
                exact = published(form, abs(x - y), p, a, q)
                assert abs(bias[0, h, i, j].item() - exact) <= 1e-13 * max(1, abs(exact))
                for name, slope in derivatives(form, abs(x - y), p, a, q).items():
                    slopes[name][h] += slope * weights[0, h, i, j].item()
    (bias * weights).sum().backward()
    for name, parameter in scheme.named_parameters():
        wanted = torch.tensor(slopes[name], dtype=torch.float64)
        assert (parameter.grad - wanted).abs().max() <= 1e-12 * wanted.abs().max()


@pytest.mark.parametrize("form", ["log", "power", "log_power"])
def test_numbers_out_of_bounds_count_as_the_bound_and_can_come_back(form):
    scheme, edge = Kerple(heads=1, form=form).double(), Kerple(heads=1, form=form).double()
    with torch.no_grad():
        for out, within in zip(scheme.parameters(), edge.parameters(), strict=True):
            out.fill_(-3.0)
            within.fill_(0.01)
    for one in (scheme, edge):
        one.bias(placed()).sum().backward()
    assert torch.allclose(scheme.bias(placed()), edge.bias(placed()), rtol=1e-13, atol=0)
    for out, within in zip(scheme.parameters(), edge.parameters(), strict=True):
        assert out.item() == -3.0
        assert out.grad.item() != 0
        assert math.isclose(out.grad.item(), within.grad.item(), rel_tol=1e-12)


@pytest.mark.parametrize(("form", "name"), [("power", "p"), ("log_power", "q")])
def test_no_power_of_the_distance_is_above_two(form, name):
    scheme = Kerple(heads=1, form=form).double()
    with torch.no_grad():
        getattr(scheme, name).fill_(7.0)
        steep = scheme.bias(placed())
        getattr(scheme, name).fill_(2.0)
    assert torch.allclose(steep, scheme.bias(placed()), rtol=1e-12, atol=0)


def test_the_log_form_may_be_as_steep_as_it_likes():
    scheme = Kerple(heads=1).double()
    with torch.no_grad():
        scheme.p.fill_(7.0)
        scheme.a.fill_(1.0)
    bias = scheme.bias(Geometry.causal(2))
    assert math.isclose(bias[0, 0, 1, 0].item(), -7 * math.log(2), rel_tol=1e-14)


def test_parameters_are_initialised_as_in_the_published_code():
    scheme = Kerple(heads=4000, form="log_power", weighted=True)
    for name, high in {"p": 2, "a": 1, "q": 2, "r": 2, "b": 1}.items():
        drawn = getattr(scheme, name)
        assert drawn.min() >= 0
        assert 0.99 * high < drawn.max() <= high
        assert abs(drawn.mean().item() - high / 2) < 0.05 * high


@pytest.mark.parametrize("form", ["log", "power"])
def test_weighted_scores_fade_with_the_distance(form):
    scheme = Kerple(heads=2, form=form, weighted=True).double()
    q, k, v = torch.randn(3, 1, 2, len(PLACES), 4, dtype=torch.float64).requires_grad_().unbind()
    where = placed()
    out = attend(q, k, v, scheme.at(where), backend="reference")
    b, r, plain = scheme.b.tolist(), scheme.r.tolist(), scheme.bias(where)
    for h in range(2):
        for i, x in enumerate(PLACES):
            scores = []
            for j, y in enumerate(PLACES[: i + 1]):
                fading = math.exp(-bounded(b[h]) * abs(x - y) ** bounded(r[h], 2))
                product = sum(q[0, h, i, c].item() * k[0, h, j, c].item() for c in range(4))
                scores.append(product * 0.5 * fading + plain[0, h, i, j].item())
            total = sum(math.exp(score) for score in scores)
            for c in range(4):
                mean = sum(math.exp(score) / total * v[0, h, j, c].item() for j, score in enumerate(scores))
                assert abs(out[0, h, i, c].item() - mean) <= 1e-13
    where = Geometry.causal(4)

    def score(q, k, b, r):
        given = {"b": b, "r": r}
        return torch.func.functional_call(_Score(scheme), {f"scheme.{name}": x for name, x in given.items()}, (q, k))

    class _Score(torch.nn.Module):
        def __init__(self, scheme):
            super().__init__()
            self.scheme = scheme

        def forward(self, q, k):
            return self.scheme.score(q, k, where)

    leaves = [x.detach().clone().requires_grad_() for x in (q[:, :, :4], k[:, :, :4], scheme.b, scheme.r)]
    assert torch.autograd.gradcheck(score, leaves, fast_mode=True)


def test_without_weighting_scores_are_left_to_the_backends():
    assert Kerple(heads=2).hooks == ("bias",)
    assert Kerple(heads=2, weighted=True).hooks == ("score", "bias")
    assert Kerple(heads=2).score(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4), Geometry.causal(1)) is None


def test_large_distances_are_distinguished():
    scheme = Kerple(heads=1, form="power")
    with torch.no_grad():
        scheme.p.fill_(1.0)
        scheme.a.fill_(1.0)
    pos = torch.tensor([2**24 + 1, 2**24 + 2, 2**24 + 4])[None, :, None]
    assert scheme.bias(Geometry.from_positions(pos))[0, 0, 2].tolist() == [-3, -2, 0]


@pytest.mark.usefixtures("untyped")
def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="no form of kerple is named 'lg'; there are: log, log_power, power"):
        Kerple(heads=2, form="lg")


def test_heads_must_be_above_zero():
    with pytest.raises(ValueError, match="heads must be above zero; got 0; give a positive heads"):
        Kerple(heads=0)


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [{"form": "power"}, {"form": "log_power"}, {"weighted": True}, {"form": "power", "weighted": True}],
    ids=str,
)
def test_every_option_keeps_the_contract(options):
    broken = [f"{one.name}: {one.message}" for one in check_scheme(Kerple, **options) if one.message]
    assert not broken, "\n".join(broken)
