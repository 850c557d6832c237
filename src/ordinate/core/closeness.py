"""The one rule by which two results are equal: as close to the exact value as the plain formula in the same dtype."""

import torch
from torch import Tensor


def difference(out: Tensor, plain: Tensor, exact: Tensor, *, factor: float = 2.0) -> str | None:
    """Return how `out` differs from the exact value by more than the plain formula does; None if it does not.

        max|out - exact| <= factor * max|plain - exact| + 2 * max|(e + 0.3 - 0.3) - e|,   e = exact in the type of out

    The last term allows for rounding in that dtype. In float64 itself the limit is 1e-12 of the largest value.
    Non-finite values must occur at the same indices.

    Args:
        out: the result in question.
        plain: the plain formula on the same inputs in the same dtype.
        exact: the plain formula in float64.
        factor: 2 for results, 3 for gradients.
    """
    if out.shape != exact.shape:
        return f"shape {tuple(out.shape)}, expected {tuple(exact.shape)}"
    if out.dtype != plain.dtype:
        return f"dtype {out.dtype}, expected {plain.dtype}"
    finite = exact.isfinite()
    if not torch.equal(out.isfinite(), finite):
        return "non-finite values at other indices"
    out, plain, exact = (torch.where(finite, x.detach(), 0) for x in (out, plain, exact))
    if exact.numel() == 0:
        return None
    error, limit = (out.double() - exact).abs().max().item(), _limit(plain, exact, factor)
    return None if error <= limit else f"off by {error:.3g}, allowed {limit:.3g} ({out.dtype})"


def proof_factor(dtype: torch.dtype, *, of_gradient: bool) -> float:
    """Return the factor of `difference` by which an operator is trusted after a single small case on a device.

    It is twice the usual one for results in 16 bits, four times for results in float32, and a third more for
    gradients, which are sums of products of rounded numbers: the plain formula is computed in one order of summation
    only, whose error may be small by chance, and exponentials of base 2 round their exponents. A wrong operator is
    off by orders of magnitude.

    Args:
        dtype: dtype of the inputs.
        of_gradient: whether the result is a gradient.
    """
    return (4.0 if of_gradient else 2.0) * (4.0 if dtype == torch.float32 else 2.0)


def _limit(plain: Tensor, exact: Tensor, factor: float) -> float:
    if plain.dtype == torch.float64:
        return 1e-12 * max(exact.abs().max().item(), 1.0)
    rounded = exact.to(plain.dtype)
    floor = ((rounded + 0.3 - 0.3) - rounded).abs().max().item()
    return factor * (plain.double() - exact).abs().max().item() + 2 * floor
