"""How close results of two forms of one computation must be."""

from torch import Tensor

# of the largest number; two forms add in another order
SHARE = 1e-10


def assert_same(out: Tensor, expected: Tensor, what: str) -> None:
    """Raise an AssertionError unless both are equal in float64 but for the order of additions."""
    assert out.shape == expected.shape, f"{what}: shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    assert_near(out, expected, SHARE, what)


def assert_near(out: Tensor, expected: Tensor, share: float, what: str) -> None:
    """Raise an AssertionError unless both differ by no more than this share of the largest number."""
    assert out.isfinite().all(), f"{what}: not all numbers are finite"
    if not expected.numel():
        return
    error = (out.double() - expected.double()).abs().max().item()
    limit = share * max(expected.abs().max().item(), 1e-3)
    assert error <= limit, f"{what}: off by {error:.3g}, allowed {limit:.3g}"


def assert_mostly_near(out: Tensor, expected: Tensor, share: float, what: str) -> None:
    """Raise an AssertionError unless the root of the mean square of their difference is such a share of the expected.

    For types so narrow that a mixer which chooses (a hash) chooses otherwise for some tokens.
    """
    assert out.isfinite().all(), f"{what}: not all numbers are finite"
    if not expected.numel():
        return
    error = (out.double() - expected.double()).square().mean().sqrt().item()
    limit = share * max(expected.square().mean().sqrt().item(), 1e-3)
    assert error <= limit, f"{what}: off by {error:.3g} in the mean, allowed {limit:.3g}"
