"""Tolerance rule of the tests: an error at most that of the reference formula in the same dtype, times a factor."""

from torch import Tensor

from ordinate.core.closeness import difference


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
    found = difference(out, plain, exact, factor=factor)
    assert found is None, f"{what}: {found}"
