"""H3 compared with its equations, one token at a time, and trained on associative recall."""

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.h3 import H3
from ordinate.schemes import NoPosition
from ordinate.testing import assert_as_close


def mixed(mixer, x, where=None, state=None):
    where = Geometry.causal(x.shape[1]) if where is None else where
    return mixer(x, NoPosition().at(where), state)


def diagonal(filter, u):
    """Reference SSM: y = 2 Re(c x), x <- factor x + gain u, bilinear rule; u has filters first, time last."""
    half = filter.log_step.exp()[:, None] * torch.complex(-filter.log_decay.exp(), filter.turn) / 2
    factor, gain = (1 + half) / (1 - half), filter.log_step.exp()[:, None] / (1 - half)
    c, memory, rows = torch.view_as_complex(filter.c[0]), 0, []
    for new in u.unbind(-1):
        memory = factor * memory + gain * new[..., None]
        rows.append(2 * (c * memory).real.sum(-1) + filter.skip * new)
    return torch.stack(rows, -1)


def equations(mixer, x):
    """Reference H3: shift, multiply, filter, multiply, token by token and channel by channel."""
    batch, tokens, width = x.shape
    q, k, v = (x @ mixer.project.weight.T + mixer.project.bias).chunk(3, -1)
    taps = mixer.shift.taps[0]
    shifted = mixer.shift.skip * k
    for lag in range(min(tokens, taps.shape[1])):
        shifted = shifted + torch.cat([k.new_zeros(batch, lag, width), taps[:, lag] * k[:, : tokens - lag]], 1)
    d = mixer.head_dim
    y = torch.zeros_like(x)
    for one in range(d):
        for two in range(d):
            pairs = shifted[..., one::d] * v[..., two::d]
            y[..., two::d] += q[..., one::d] * diagonal(mixer.filter, pairs.mT).mT
    return y @ mixer.out.weight.T + mixer.out.bias


@pytest.mark.parametrize("head_dim", [1, 2, 4])
def test_it_is_its_equations(head_dim):
    mixer = H3(width=4, head_dim=head_dim, states=8).double()
    x = torch.randn(2, 45, 4, dtype=torch.float64, requires_grad=True)
    y, _ = mixed(mixer, x)
    expected = equations(mixer, x)
    assert_as_close(y, expected, expected)
    slope, leaves = torch.randn_like(y), [x, *mixer.parameters()]
    slopes = [torch.autograd.grad(out, leaves, slope) for out in (y, expected)]
    for ours, other in zip(*slopes, strict=True):
        assert torch.allclose(ours, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("head_dim", [1, 2])
@pytest.mark.parametrize("cut", [1, 7, 8, 44])
def test_decoding_continues_from_the_state(cut, head_dim):
    mixer = H3(width=4, head_dim=head_dim, states=8).double()
    x = torch.randn(2, 45, 4, dtype=torch.float64)
    whole, end = mixed(mixer, x)
    first, state = mixed(mixer, x[:, :cut])
    rest, after = mixed(mixer, x[:, cut:], Geometry.causal(45 - cut, cached=cut), state)
    assert torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-13)
    assert torch.allclose(after.x, end.x, atol=1e-12)
    assert torch.allclose(after.k, end.k, atol=1e-13)


@pytest.mark.parametrize("mirrored", [True, False])
def test_in_both_directions_it_is_the_filters_of_past_and_future(mirrored):
    mixer = H3(width=4, states=8, mirrored=mirrored).double()
    x = torch.randn(2, 21, 4, dtype=torch.float64)
    u = x.mT
    taps, skip = mixer.shift.taps, mixer.shift.skip
    shifted, _ = mixer.shift(u, False)
    for t in (0, 10, 20):
        expected = skip * x[:, t]
        for s in range(21):
            if 0 <= t - s < 8:
                expected = expected + taps[0][:, t - s] * x[:, s]
            if 0 < s - t <= 8:
                expected = expected + taps[-1][:, s - t - 1] * x[:, s]
        assert torch.allclose(shifted[..., t], expected, atol=1e-13)
    assert mixed(mixer, x, Geometry.full(21))[1] is None


def test_padding_leaves_no_trace_although_projections_have_biases():
    mixer = H3(width=4, states=8).double()
    torch.nn.init.ones_(mixer.project.bias)
    x, real = torch.randn(1, 9, 4, dtype=torch.float64), torch.tensor([[False] * 4 + [True] * 5])
    y, state = mixed(mixer, x, Geometry.padded(real))
    alone, remembered = mixed(mixer, x[:, 4:])
    assert torch.allclose(y[:, 4:], alone, atol=1e-13)
    assert torch.allclose(state.x, remembered.x, atol=1e-13)
    assert torch.allclose(state.k, remembered.k, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"head_dim": 3}, "head_dim must divide width; got 3 and 8; choose one that does"),
        ({"head_dim": 0}, "head_dim must be above zero; got 0"),
        ({"states": 5}, "states must be even and positive; got 5"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        H3(width=8, **options)
