"""Random features whose products are, on average, the exponential of a product."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.ops.product import times_transposed

Vectors = Float[Tensor, "b h n d"]
Features = Float[Tensor, "b h n m"]
Levels = Float[Tensor, "b h n"]
Directions = Float[Tensor, "directions d"]


def orthogonal_directions(count: int, width: int, generator: torch.Generator) -> Directions:
    """Directions as if drawn from a normal distribution each, but at right angles in blocks of `width`; in float64.

    A block is uniform among all rotations and reflections (Haar): the factor Q that LAPACK returns is not, its
    diagonal leans to one side; the signs of R's diagonal put that right. Each row gets the length of a normal vector
    of its own.

    Args:
        count: how many.
        width: of each.
        generator: draws the numbers, on the CPU.
    """
    blocks = -(-count // width)
    drawn = torch.randn(blocks, width, width, generator=generator, dtype=torch.float64, device="cpu")
    q, r = torch.linalg.qr(drawn)
    q = q * r.diagonal(dim1=1, dim2=2).sign()[:, None]
    lengths = torch.randn(blocks, width, width, generator=generator, dtype=torch.float64, device="cpu").norm(dim=2)
    return (q.mT * lengths[..., None]).flatten(0, 1)[:count]


def exponential_features(
    x: Vectors, directions: Directions, *, scale: float, mirrored: bool
) -> tuple[Features, Levels]:
    """Features of vectors, the largest of each vector 1, and the logarithm of what they are divided by.

        phi(x) e^level = e^(s w x - |s x|^2 / 2) for each w, so that the mean of phi(q) phi(k) is e^(s^2 q k)

    Gradients flow through the features as if they were not divided, and through the levels' |x|^2.

    Args:
        x: queries or keys.
        directions: w, a row for each.
        scale: s.
        mirrored: whether each direction serves with its opposite: hyperbolic features.
    """
    features, highest = _Exponentials.apply(x, directions * scale, mirrored)
    return features, highest - (scale * torch.linalg.vector_norm(x, dim=-1)).square() / 2


class _Exponentials(torch.autograd.Function):
    """One buffer for all that is as wide as the features."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, directions: Tensor, mirrored: bool) -> tuple[Tensor, Tensor]:
        products = times_transposed(x.flatten(0, -2).contiguous(), directions).unflatten(0, x.shape[:-1])
        low, highest = products.aminmax(dim=-1)
        features = products
        if mirrored:
            highest = torch.maximum(highest, -low)
            features = products.new_empty(*x.shape[:-1], 2 * len(directions))
            features[..., len(directions) :].copy_(products).neg_()
            features[..., : len(directions)] = products
        features.sub_(highest[..., None]).exp_()
        ctx.save_for_backward(features, directions)
        ctx.mark_non_differentiable(highest)
        return features, highest

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        features, directions = ctx.saved_tensors
        slopes = grad_outputs[0] * features
        if features.shape[-1] > len(directions):
            up, down = slopes.chunk(2, -1)
            slopes = up - down
        return slopes @ directions, None, None
