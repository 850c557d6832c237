"""Filters read in chunks against a sum over all earlier tokens, with powers of dense matrices, in float64."""

import math

import pytest
import torch

from ordinate.ops.diagonal import diagonal_state_space, discretise
from ordinate.ops.hippo import hippo_legs, initial_diagonal
from ordinate.ops.low_rank import DiagonalPlusLowRank
from ordinate.ops.state_space import read_reversed
from ordinate.testing import assert_as_close

RULES = ("zoh", "bilinear")
INITS = ("lin", "inv", "legs", "real")


def kernel(a, b, c, step, rule, tokens):
    """c A^l b for l = 0, 1, ..., with A and b of one channel made discrete by dense matrices."""
    one = torch.eye(len(a), dtype=a.dtype)
    if rule == "zoh":
        # the exponential of [[a, b], [0, 0]] holds both (Van Loan 1978)
        both = torch.zeros(len(a) + 1, len(a) + 1, dtype=a.dtype)
        both[:-1, :-1], both[:-1, -1] = a * step, b * step
        both = torch.linalg.matrix_exp(both)
        a, b = both[:-1, :-1], both[:-1, -1]
    else:
        a, b = (torch.linalg.solve(one - step / 2 * a, part) for part in (one + step / 2 * a, step * b))
    rows = []
    for _ in range(tokens):
        rows.append(c @ b)
        b = a @ b
    return torch.stack(rows)


def convolved(kernel, u):
    """y_t = sum over s <= t of kernel[t-s] u_s, term by term."""
    y = torch.zeros_like(u)
    for t in range(u.shape[2]):
        for s in range(t + 1):
            y[..., t] += kernel[:, None, t - s] * u[..., s]
    return y


def doubled(a, b, c):
    """The dense matrix and vectors of all numbers, of which half are given: the others are their conjugates."""
    return torch.diag(torch.cat([a, a.conj()])), torch.cat([b, b.conj()]), torch.cat([c, c.conj()])


def drawn(channels, states, init):
    a, b = initial_diagonal(states, init)
    step = torch.empty(channels, 1, dtype=torch.float64).uniform_(math.log(1e-3), math.log(1e-1)).exp()
    c = torch.randn(channels, states // 2, dtype=torch.complex128)
    return a.repeat(channels, 1), b, c, step, torch.randn(channels, dtype=torch.float64)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("init", INITS)
def test_a_diagonal_kernel_is_made_of_dense_matrix_powers(init, rule):
    a, b, c, step, skip = drawn(3, 8, init)
    factor, gain = discretise(a, step, rule)
    made = diagonal_state_space(factor, c * b * gain, skip, 45, torch.float64).kernel
    for channel in range(3):
        dense = doubled(a[channel], b, c[channel])
        expected = kernel(*dense, step[channel], rule, 45).real
        expected[0] += skip[channel]
        assert torch.allclose(made[channel], expected, atol=1e-12, rtol=1e-10)


@pytest.mark.covering(1)
@pytest.mark.parametrize("chunk", [1, 7, 32, 45])
@pytest.mark.parametrize("tokens", [1, 6, 7, 32, 45])
def test_chunks_agree_with_the_sum_over_all_earlier_tokens(chunk, tokens):
    a, _, c, step, skip = drawn(2, 6, "lin")
    leaves = [x.requires_grad_() for x in (a, c, step, skip, torch.randn(2, 3, tokens, dtype=torch.float64))]
    factor, gain = discretise(leaves[0], leaves[2], "zoh")
    whole = diagonal_state_space(factor, leaves[1] * gain, skip, tokens, torch.float64).kernel
    expected = convolved(whole, leaves[4])
    y, _ = diagonal_state_space(factor, leaves[1] * gain, skip, chunk, torch.float64).read(leaves[4])
    assert_as_close(y, expected, expected)
    slope = torch.randn_like(y)
    slopes = (torch.autograd.grad(out, leaves, slope, retain_graph=True) for out in (y, expected))
    for ours, other in zip(*slopes, strict=True):
        assert torch.allclose(ours, other, rtol=1e-9, atol=1e-9)


def low_rank(channels, states):
    a, p, b = hippo_legs(states)
    _, _, c, step, skip = drawn(channels, states, "lin")
    return DiagonalPlusLowRank(a[None], p[None], b[None], c, skip, step)


@pytest.mark.parametrize("tokens", [1, 32, 33, 64])
def test_a_kernel_of_low_rank_is_made_of_dense_matrix_powers(tokens):
    filter = low_rank(2, 8)
    made = filter.dense(tokens).kernel
    a, b, c = doubled(filter.a[0], filter.b[0], filter.c[0])
    p = torch.cat([filter.p[0], filter.p[0].conj()])
    expected = kernel(a - torch.outer(p, p.conj()), b, c, filter.step[0], "bilinear", tokens).real
    expected[0] += filter.skip[0]
    assert torch.allclose(made[0], expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("tokens", [32, 33])
def test_a_kernel_of_low_rank_is_that_of_the_papers_generating_function(tokens):
    filter = low_rank(2, 8)
    a, b, c = (torch.cat([x, x.conj()], 1) for x in (filter.a, filter.b, filter.c))
    p = torch.cat([filter.p, filter.p.conj()], 1)
    matrix = torch.diag(a[0]) - torch.outer(p[0], p[0].conj())
    one = torch.eye(8, dtype=a.dtype)
    for channel, step in enumerate(filter.step[:, 0]):
        power = torch.linalg.solve(one - step / 2 * matrix, one + step / 2 * matrix).matrix_power(tokens)
        cut = c[channel] @ (one - power)
        root = torch.exp(-2j * math.pi * torch.arange(tokens // 2 + 1).double() / tokens)[:, None]
        below = 2 / step * (1 - root) - a * (1 + root)
        cauchy = {
            name: (x * y / below).sum(1, keepdim=True)
            for name, x, y in (("cb", cut, b), ("cp", cut, p), ("pb", p.conj(), b), ("pp", p.conj(), p))
        }
        rest = (1 + root) * cauchy["cp"] * cauchy["pb"] / (1 + (1 + root) * cauchy["pp"])
        expected = torch.fft.irfft(2 * (cauchy["cb"] - rest)[:, 0], n=tokens)
        expected[0] += filter.skip[channel]
        assert torch.allclose(filter.dense(tokens).kernel[channel], expected, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_low_rank_by_chunks_is_low_rank_step_by_step(chunk):
    filter, u = low_rank(2, 8), torch.randn(2, 3, 45, dtype=torch.float64)
    y, x = filter.dense(chunk).read(u)
    memory = torch.zeros(2, 3, 4, dtype=torch.complex128)
    for token in range(45):
        memory = filter.step_on(memory, u[..., token])
        assert torch.allclose(y[..., token], filter.read(memory, u[..., token]), atol=1e-12)
    assert torch.allclose(torch.view_as_complex(x.unflatten(2, (4, 2))), memory, atol=1e-12)


def test_reading_back_hears_the_tokens_after_each_one():
    a, _, c, step, skip = drawn(2, 6, "lin")
    factor, gain = discretise(a, step, "zoh")
    u = torch.randn(2, 3, 40, dtype=torch.float64)
    space = diagonal_state_space(factor, c * gain, skip, 32, torch.float64)
    back = read_reversed(lambda u: space.read(u)[0], u)
    kernel = diagonal_state_space(factor, c * gain, skip, 40, torch.float64).kernel
    for t in (0, 20, 38):
        assert torch.allclose(back[..., t], (kernel[:, None, : 39 - t] * u[..., t + 1 :]).sum(2), atol=1e-12)
    assert torch.equal(back[..., 39], torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("init", INITS)
def test_far_tokens_are_heard_in_float32_as_in_float64(init):
    a, b, c, step, skip = drawn(4, 64, init)
    factor, gain = discretise(a, step, "zoh")
    u = torch.zeros(4, 1, 4096, dtype=torch.float64)
    u[..., 0] = 1
    exact, narrow = (
        diagonal_state_space(factor, c * b * gain, skip, 32, type).read(u.to(type))[0]
        for type in (torch.float64, torch.float32)
    )
    # powers found by products of float32 would be off by 1e-4 at Inv's fastest turns
    assert (narrow - exact).abs().max() < 4e-6 * exact.abs().max()


def test_legs_is_the_hippo_matrix_in_another_basis():
    n = torch.arange(16, dtype=torch.float64)
    odd = 2 * n + 1
    matrix = -torch.outer(odd, odd).sqrt().tril(-1) - torch.diag(n + 1)
    a, p, b = hippo_legs(16)
    a, p, b = (torch.cat([x, x.conj()]) for x in (a, p, b))
    ours = torch.diag(a) - torch.outer(p, p.conj())
    # what does not depend on the basis: b* A^l b
    for power in range(5):
        expected = odd.sqrt() @ matrix.matrix_power(power) @ odd.sqrt()
        assert torch.allclose((b.conj() @ ours.matrix_power(power) @ b).real, expected, rtol=1e-10)
