"""Principal subspaces, their overlap (principal angles), and its null distribution for random directions."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

DRAWS = 2000


def principal_subspace(x: Float[Tensor, "rows width"], energy: float) -> Float[Tensor, "some width"]:
    """Return the first right singular vectors of these rows, as few as explain this share of their squared norm."""
    return principal_subspaces(x, (energy,))[0]


def principal_subspaces(
    x: Float[Tensor, "rows width"], energies: tuple[float, ...]
) -> list[Float[Tensor, "some width"]]:
    """Return one such basis for each of several shares."""
    wide = x.double()
    # the Gram matrix has the size of the width: an SVD of many rows would be far larger
    values, vectors = torch.linalg.eigh(wide.T @ wide)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    share = values.cumsum(0) / values.sum().clamp(min=1e-300)
    return [vectors.T[: int((share < energy - 1e-12).sum()) + 1] for energy in energies]


def principal_cosines(one: Float[Tensor, "a width"], other: Float[Tensor, "b width"]) -> Float[Tensor, "least"]:
    """Cosines of the principal angles between two subspaces with orthonormal bases, largest first.

    Source: Björck and Golub 1973, Mathematics of Computation 27:579.
    """
    return torch.linalg.svdvals(one @ other.T).clamp(max=1)


def subspace_overlap(one: Float[Tensor, "a width"], other: Float[Tensor, "b width"]) -> float:
    """Share of the smaller subspace that lies in the larger one: the mean squared cosine of their principal angles.

    |U V^T|^2 / min(a, b);    for random subspaces max(a, b) / width on average
    """
    return float((one @ other.T).square().sum()) / min(len(one), len(other))


def null_overlaps(weights: Float[Tensor, "a"], directions: int, width: int, seed: int) -> Float[ndarray, "draws"]:
    """Null distribution of the share of weighted random directions that lies in a given subspace.

    The squared projection of a random unit vector onto b of `width` dimensions has a Beta(b / 2, (width - b) / 2)
    distribution; the projections of several vectors are averaged by their weights. They are drawn independently
    although they are orthogonal, which makes the spread slightly too large.

    Args:
        weights: weight of each direction.
        directions: dimension of the subspace.
        width: dimension of the whole space.
        seed: of the draws.
    """
    if directions >= width:
        return np.ones(DRAWS)
    own = weights.double().cpu().numpy() / float(weights.sum())
    drawn = np.random.default_rng(seed).beta(directions / 2, (width - directions) / 2, (DRAWS, len(own)))
    return drawn @ own
