"""Vectors with NaN or infinity in functions that have learned parameters."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor


def by_finite_vectors(
    function: Callable[[Float[Tensor, "*any d"]], Float[Tensor, "*any e"]], x: Float[Tensor, "*any d"]
) -> Float[Tensor, "*any e"]:
    """Apply a function of each vector; a vector with a number that is not finite becomes NaN and passes no gradient.

    A gradient by a parameter is a product of the vector and the upstream gradient: 0 * NaN is NaN, so that one hidden
    token would make the gradients of the parameters NaN.

    Args:
        function: maps each vector by itself.
        x: vectors.
    """
    lost = ~x.isfinite().all(-1, keepdim=True)
    return function(x.masked_fill(lost, 0.0)).masked_fill(lost, float("nan"))
