"""The one rule for "equal": no worse than the plain formula computed in the same type."""

import torch
from torch import Tensor


def assert_as_close(out: Tensor, plain: Tensor, exact: Tensor, *, factor: float = 2.0, what: str = "result") -> None:
    """Raise an AssertionError unless `out` is nearly as close to the truth as the plain formula is.

        max|out - exact| <= factor * max|plain - exact| + 2 * max|(e + 0.3 - 0.3) - e|,   e = exact in the type of out

    The last term is what rounding alone costs in that type. In float64 the limit is 1e-12 of the largest number
    instead. A number that is not finite must stand in the same places on both sides.

    Args:
        out: what is tested.
        plain: the reference formula on the same inputs in the same type.
        exact: the reference formula in float64.
        factor: 2 for results, 3 for gradients.
        what: named in the message.
    """
    assert out.shape == exact.shape, f"{what}: shape {tuple(out.shape)}, expected {tuple(exact.shape)}"
    assert out.dtype == plain.dtype, f"{what}: type {out.dtype}, expected {plain.dtype}"
    finite = exact.isfinite()
    assert torch.equal(out.isfinite(), finite), f"{what}: numbers that are not finite stand in other places"
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
