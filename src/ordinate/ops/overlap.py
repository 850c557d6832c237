"""How much two sets of directions have in common, and how much by chance."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

DRAWS = 2000


def frame(x: Float[Tensor, "rows width"], energy: float) -> Float[Tensor, "some width"]:
    """Orthonormal directions, as few as hold so much of the squares of these rows: the first singular vectors."""
    return frames(x, (energy,))[0]


def frames(x: Float[Tensor, "rows width"], energies: tuple[float, ...]) -> list[Float[Tensor, "some width"]]:
    """The same for several shares of the squares."""
    wide = x.double()
    # rows may be many: what is squared has the size of the width
    values, vectors = torch.linalg.eigh(wide.T @ wide)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    share = values.cumsum(0) / values.sum().clamp(min=1e-300)
    return [vectors.T[: int((share < energy - 1e-12).sum()) + 1] for energy in energies]


def cosines(one: Float[Tensor, "a width"], other: Float[Tensor, "b width"]) -> Float[Tensor, "least"]:
    """The cosines of the principal angles between two frames, the largest first.

    Source: Björck and Golub 1973, Mathematics of Computation 27:579.
    """
    return torch.linalg.svdvals(one @ other.T).clamp(max=1)


def overlap(one: Float[Tensor, "a width"], other: Float[Tensor, "b width"]) -> float:
    """How much of the smaller frame lies in the larger: the mean squared cosine of their principal angles.

    |U V^T|^2 / min(a, b);    by chance max(a, b) / width on average
    """
    return float((one @ other.T).square().sum()) / min(len(one), len(other))


def by_chance(weights: Float[Tensor, "a"], directions: int, width: int, seed: int) -> Float[ndarray, "draws"]:
    """How much of directions that are turned at random lies in a given frame.

    The part of a random unit vector in b of `width` directions has a Beta(b / 2, (width - b) / 2) distribution; the
    parts of several are added by their weights. That they stand at right angles is left out, which makes the spread
    a little larger than it is.

    Args:
        weights: how much each direction counts.
        directions: of the frame.
        width: of all.
        seed: of the draws.
    """
    if directions >= width:
        return np.ones(DRAWS)
    own = weights.double().cpu().numpy() / float(weights.sum())
    drawn = np.random.default_rng(seed).beta(directions / 2, (width - directions) / 2, (DRAWS, len(own)))
    return drawn @ own
