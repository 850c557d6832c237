"""Tolerance rule of the tests: an error at most that of the reference formula in the same dtype, times a factor."""

import torch
from torch import Tensor


def assert_as_close(out: Tensor, plain: Tensor, exact: Tensor, *, factor: float = 2.0, what: str = "result") -> None:
    """Raise an AssertionError unless the error of `out` is at most `factor` times that of the reference formula.

        max|out - exact| <= factor * max|plain - exact| + 2 * max|(e + 0.3 - 0.3) - e|,   e = exact in the type of out

    The last term allows for rounding in that dtype. In float64 the limit is 1e-12 of the largest value instead.
    Non-finite values must occur at the same indices.

    Args:
        out: the result under test.
        plain: the reference formula on the same inputs in the same dtype.
        exact: the reference formula in float64.
        factor: 2 for results, 3 for gradients.
        what: name of the result in the message.
    """
    assert out.shape == exact.shape, f"{what}: shape {tuple(out.shape)}, expected {tuple(exact.shape)}"
    assert out.dtype == plain.dtype, f"{what}: dtype {out.dtype}, expected {plain.dtype}"
    finite = exact.isfinite()
    assert torch.equal(out.isfinite(), finite), f"{what}: non-finite values at other indices"
    out, plain, exact = (torch.where(finite, x.detach(), 0) for x in (out, plain, exact))
    if exact.numel() == 0:
        return
    error = (out.double() - exact).abs().max().item()
    limit = _limit(plain, exact, factor)
    assert error <= limit, f"{what}: off by {error:.3g}, allowed {limit:.3g} ({out.dtype})"


def _limit(plain: Tensor, exact: Tensor, factor: float) -> float:
    if plain.dtype == torch.float64:
        return 1e-12 * max(exact.abs().max().item(), 1.0)
    rounded = exact.to(plain.dtype)
    floor = ((rounded + 0.3 - 0.3) - rounded).abs().max().item()
    return factor * (plain.double() - exact).abs().max().item() + 2 * floor
