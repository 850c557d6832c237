"""Assertions of closeness for two computations of the same result."""

from torch import Tensor

# relative to the largest value; allows for another order of summation in float64
RTOL = 1e-10


def assert_equal_up_to_order(out: Tensor, expected: Tensor, what: str) -> None:
    """Raise an AssertionError unless both agree in float64 up to the order of summation."""
    assert out.shape == expected.shape, f"{what}: shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    assert_max_close(out, expected, RTOL, what)


def assert_max_close(out: Tensor, expected: Tensor, share: float, what: str) -> None:
    """Raise an AssertionError if the maximum difference exceeds this fraction of the largest expected value."""
    assert out.isfinite().all(), f"{what}: not all values are finite"
    if not expected.numel():
        return
    error = (out.double() - expected.double()).abs().max().item()
    limit = share * max(expected.abs().max().item(), 1e-3)
    assert error <= limit, f"{what}: off by {error:.3g}, allowed {limit:.3g}"


def assert_rms_close(out: Tensor, expected: Tensor, share: float, what: str) -> None:
    """Raise an AssertionError if the RMS difference exceeds this fraction of the RMS of the expected values.

    For low precision, where rounding may change discrete choices of a mixer (such as hash buckets) for some tokens.
    """
    assert out.isfinite().all(), f"{what}: not all values are finite"
    if not expected.numel():
        return
    error = (out.double() - expected.double()).square().mean().sqrt().item()
    limit = share * max(expected.square().mean().sqrt().item(), 1e-3)
    assert error <= limit, f"{what}: off by {error:.3g} in the mean, allowed {limit:.3g}"
