"""S4 compared with dense matrices, discretised and applied token by token."""

import pytest
import torch
from torch.nn.functional import gelu, glu

from ordinate import Geometry
from ordinate.mixers.s4 import S4
from ordinate.schemes import NoPosition
from ordinate.testing import assert_as_close


def mixed(mixer, x, where=None, state=None):
    where = Geometry.causal(x.shape[1]) if where is None else where
    return mixer(x, NoPosition().at(where), state)


def both(half):
    return torch.cat([half, half.conj()], -1)


def recurrence(mixer, x, side=0):
    """Reference SSM: x <- (1 - step/2 A)^-1 ((1 + step/2 A) x + step b u), y = c x, with A dense."""
    filter = mixer.filter
    a = torch.diag(both(torch.complex(-filter.log_decay.exp(), filter.turn)))
    p, b = both(torch.view_as_complex(filter.p)), both(torch.view_as_complex(filter.b))
    a = a - torch.outer(p, p.conj())
    half = filter.log_step.exp()[:, None, None] / 2 * a
    one = torch.eye(len(a), dtype=a.dtype)
    matrix = torch.linalg.solve(one - half, one + half)
    taken = torch.linalg.solve(one - half, filter.log_step.exp()[:, None] * b)
    c, rows = both(torch.view_as_complex(filter.c[side])), []
    memory = torch.zeros(x.shape[0], *c.shape, dtype=a.dtype)
    for u in x.unbind(1):
        memory = torch.einsum("hst,bht->bhs", matrix, memory) + taken * u[..., None]
        rows.append((c * memory).real.sum(2))
    return torch.stack(rows, 1)


def layer(mixer, y):
    return glu(gelu(y) @ mixer.out.weight.T + mixer.out.bias, -1)


def test_it_is_the_recurrence_of_dense_matrices():
    mixer = S4(width=3, states=8).double()
    x = torch.randn(2, 67, 3, dtype=torch.float64, requires_grad=True)
    y, _ = mixed(mixer, x)
    expected = layer(mixer, recurrence(mixer, x) + mixer.filter.skip * x)
    assert_as_close(y, expected, expected)
    slope, leaves = torch.randn_like(y), [x, *mixer.parameters()]
    slopes = [torch.autograd.grad(out, leaves, slope) for out in (y, expected)]
    for ours, other in zip(*slopes, strict=True):
        assert torch.allclose(ours, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mirrored", [True, False])
def test_both_directions_hear_the_future_one_token_shifted(mirrored):
    mixer = S4(width=3, states=8, mirrored=mirrored).double()
    x = torch.randn(2, 41, 3, dtype=torch.float64)
    y, state = mixed(mixer, x, Geometry.full(41))
    back = recurrence(mixer, x.flip(1), side=0 if mirrored else 1)
    future = torch.cat([torch.zeros(2, 1, 3, dtype=torch.float64), back[:, :-1]], 1).flip(1)
    expected = layer(mixer, recurrence(mixer, x) + mixer.filter.skip * x + future)
    assert_as_close(y, expected, expected)
    assert state is None


def test_steps_by_woodbury_equal_chunks_by_matrices():
    mixer, x = S4(width=3, states=8).double(), torch.randn(2, 67, 3, dtype=torch.float64)
    whole, end = mixed(mixer, x)
    y, state = mixed(mixer, x[:, :34])
    rows = [y]
    for token in range(34, 67):
        y, state = mixed(mixer, x[:, token : token + 1], Geometry.causal(1, cached=token), state)
        rows.append(y)
    assert torch.allclose(torch.cat(rows, 1), whole, atol=1e-13)
    assert torch.allclose(state.x, end.x, atol=1e-12)


def test_the_matrix_at_birth_is_hippo_legs_and_lets_nothing_grow():
    space = S4(width=1, states=8, steps=(0.01, 0.01)).double().filter._low_rank(False, torch.float64).dense(32)
    rates = -torch.arange(1, 9, dtype=torch.float64)
    expected = (1 + 0.01 * rates / 2) / (1 - 0.01 * rates / 2)
    found = torch.linalg.eigvals(space.squares[0][0]).abs().sort(descending=True).values
    # every eigenvalue is real; the memory has each twice, for real and imaginary parts do not meet
    assert torch.allclose(found, expected, atol=1e-4)
    assert torch.linalg.matrix_norm(space.squares[-1], 2).max() <= 1 + 1e-12


def test_far_tokens_are_heard_in_float32_as_in_float64():
    torch.manual_seed(1)
    narrow = S4(width=3).filter
    wide = S4(width=3).double().filter
    wide.load_state_dict(narrow.state_dict())
    u = torch.zeros(3, 1, 2048)
    u[..., 0] = 1
    y, exact = narrow(u, True)[0], wide(u.double(), True)[0]
    assert (y - exact).abs().max() < 1e-5 * exact.abs().max()


def test_numbers_for_a_hidden_future_are_refused():
    with pytest.raises(ValueError, match="mirrored=False requires a bidirectional geometry"):
        mixed(S4(width=8, mirrored=False), torch.randn(1, 5, 8))
