"""Positive random features of the softmax kernel (Performer, FAVOR+)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import gradients, in_one, untraceable
from ordinate.ops.matmul import matmul_transposed

Vectors = Float[Tensor, "b h n d"]
Features = Float[Tensor, "b h n m"]
Levels = Float[Tensor, "b h n"]
Directions = Float[Tensor, "directions d"]


def orthogonal_directions(count: int, width: int, generator: torch.Generator) -> Directions:
    """Draw Gaussian directions that are orthogonal in blocks of `width` rows; in float64.

    Each block is a Haar-distributed orthogonal matrix. The Q of LAPACK's QR decomposition is not, since its sign
    convention is deterministic; the signs of R's diagonal correct that. Each row is scaled to the norm of an
    independent normal vector.

    Args:
        count: number of directions.
        width: dimension of each.
        generator: random number generator on the CPU.
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
    """Return positive random features divided by the largest of each vector, and the logarithm of that divisor.

        phi(x) e^level = e^(s w x - |s x|^2 / 2) for each w, so that the mean of phi(q) phi(k) is e^(s^2 q k)

    The divisor is treated as a constant in gradients of the features; |x|^2 in the levels has its gradient.

    Args:
        x: queries or keys.
        directions: w, one per row.
        scale: s.
        mirrored: use each direction and its negative (hyperbolic features).
    """
    # gradients of what a traced function writes in place are wrong in PyTorch 2.11; torch.compile fuses these itself
    plain = torch.compiler.is_compiling() or untraceable(x)
    make = _plain_exponentials if plain else _Exponentials.apply
    features, highest = make(x, directions * scale, mirrored)
    # a sum of squares: the norm has no second derivative at 0, where padding is
    return features, highest - (scale * x).square().sum(-1) / 2


class _Exponentials(torch.autograd.Function):
    """In-place exponential features: one buffer as wide as the features, instead of one per operation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, directions: Tensor, mirrored: bool) -> tuple[Tensor, Tensor]:
        products = matmul_transposed(x.flatten(0, -2).contiguous(), directions).unflatten(0, x.shape[:-1])
        low, highest = products.aminmax(dim=-1)
        features = products
        if mirrored:
            highest = torch.maximum(highest, -low)
            features = products.new_empty(*x.shape[:-1], 2 * len(directions))
            features[..., len(directions) :].copy_(products).neg_()
            features[..., : len(directions)] = products
        features.sub_(highest[..., None]).exp_()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, features, directions)
        ctx.mark_non_differentiable(highest)
        return features, highest

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        x, features, directions = ctx.saved_tensors
        mirrored = features.shape[-1] > len(directions)

        def fast(gradient: Tensor) -> tuple[Tensor]:
            slopes = gradient * features
            if mirrored:
                up, down = slopes.chunk(2, -1)
                slopes = up - down
            return (slopes @ directions,)

        plain = in_one(lambda x: _plain_exponentials(x, directions, mirrored)[0])
        return *gradients(fast, plain, (x,), grad_outputs[:1]), None, None


def _plain_exponentials(x: Tensor, directions: Tensor, mirrored: bool) -> tuple[Tensor, Tensor]:
    """The same by operations that autograd can trace."""
    products = x @ directions.mT
    products = torch.cat([products, -products], -1) if mirrored else products
    highest = products.detach().amax(-1)
    return (products - highest[..., None]).exp(), highest
