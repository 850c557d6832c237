"""A small network evaluated at many points."""

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


def perceptron(
    x: Float[Tensor, "*any inputs"],
    layers: Sequence[nn.Linear],
    activation: Callable[[Tensor], Tensor],
    norms: Sequence[nn.LayerNorm] = (),
) -> Float[Tensor, "*any outputs"]:
    """The layers one after another, an activation behind each but the last; in float64.

    In float64 a matrix product of a few points rounds to the same float32 number as one of many points, so that a
    part of a table is what the table has there.

    Args:
        x: the points, a row for each.
        layers: their weights; they are not changed.
        activation: what makes it more than one matrix.
        norms: one for each layer but the last, applied before the activation; none at all leaves them out.
    """
    x = x.double()
    for place, layer in enumerate(layers):
        if place > 0:
            x = activation(_normed(x, norms[place - 1]) if norms else x)
        x = functional.linear(x, layer.weight.double(), None if layer.bias is None else layer.bias.double())
    return x


def _normed(x: Float[Tensor, "*any d"], norm: nn.LayerNorm) -> Float[Tensor, "*any d"]:
    return functional.layer_norm(x, norm.normalized_shape, norm.weight.double(), norm.bias.double(), norm.eps)
