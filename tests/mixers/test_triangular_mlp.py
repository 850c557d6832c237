import pytest
import torch
from torch.nn.functional import gelu

from ordinate import Geometry
from ordinate.mixers.triangular_mlp import TriangularMlp
from ordinate.schemes import NoPosition


def by_the_formula(mixer, x):
    """Reference implementation, position by position."""
    hidden, outs = [], []
    for s in range(x.shape[1]):
        sums = [
            (mixer.gather[e, s, : s + 1] @ x[:, : s + 1]) + mixer.gather_bias[e, s] for e in range(len(mixer.gather))
        ]
        hidden.append([gelu(total) for total in sums])
    for t in range(x.shape[1]):
        total = mixer.spread_bias[t] * torch.ones_like(x[:, 0])
        for s in range(t + 1):
            for e in range(len(mixer.spread)):
                total = total + mixer.spread[e, t, s] * hidden[s][e]
        outs.append(total)
    return torch.stack(outs, 1)


def made(**options):
    mixer = TriangularMlp(**{"width": 3, "max_length": 8} | options).double()
    torch.nn.init.normal_(mixer.gather_bias)
    torch.nn.init.normal_(mixer.spread_bias)
    return mixer


@pytest.mark.parametrize("expansion", [1, 2])
@pytest.mark.parametrize("tokens", [1, 5, 8])
def test_it_is_the_formula(tokens, expansion):
    mixer, x = made(expansion=expansion), torch.randn(2, tokens, 3, dtype=torch.float64, requires_grad=True)
    outs = mixer(x, NoPosition().at(Geometry.causal(tokens)))[0], by_the_formula(mixer, x)
    torch.testing.assert_close(*outs, atol=1e-13, rtol=1e-13)
    gradients = (torch.autograd.grad(y.sin().sum(), [x, *mixer.parameters()]) for y in outs)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_what_lies_above_the_diagonal_is_never_used():
    mixer, x = made(), torch.randn(1, 8, 3, dtype=torch.float64)
    at = NoPosition().at(Geometry.causal(8))
    before, _ = mixer(x, at)
    with torch.no_grad():
        for matrix in (mixer.gather, mixer.spread):
            matrix.add_(torch.ones(8, 8).double().triu(1) * float("1e9"))
    assert torch.equal(mixer(x, at)[0], before)


def test_decoding_continues_from_the_state():
    mixer, x = made(expansion=2), torch.randn(2, 8, 3, dtype=torch.float64)
    whole, _ = mixer(x, NoPosition().at(Geometry.causal(8)))
    state, outs = None, []
    for begin, end in ((0, 3), (3, 4), (4, 8)):
        y, state = mixer(x[:, begin:end], NoPosition().at(Geometry.causal(end - begin, cached=begin)), state)
        outs.append(y)
    torch.testing.assert_close(torch.cat(outs, 1), whole, atol=1e-13, rtol=1e-13)


def test_all_places_are_equally_loud_at_birth():
    mixer = TriangularMlp(width=64, max_length=200)
    y, _ = mixer(torch.randn(1, 200, 64), NoPosition().at(Geometry.causal(200)))
    early, late = y[:, 20:60].std(), y[:, 160:].std()
    assert 0.5 < (early / late).item() < 2


@pytest.mark.parametrize(("options", "match"), [({"max_length": 0}, "max_length"), ({"expansion": 0}, "expansion")])
def test_sizes_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=f"{match} must be above zero; got 0"):
        made(**options)


def test_it_reads_from_left_to_right_only():
    with pytest.raises(
        ValueError, match="needs a causal geometry; got a bidirectional one for mixer 'triangular_mlp'"
    ):
        made()(torch.randn(1, 3, 3).double(), NoPosition().at(Geometry.full(3)))
