"""Properties of a table of position embeddings: linear separability of positions, and linear readout of functions."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.convex_hull import hull_distance_bound
from ordinate.ops.linear_readout import ridge_r2
from ordinate.probing._adapter import NotApplicable

# rows of the table that are used, and groups (for intervals) that they are split into
MAX_POSITIONS, GROUPS = 128, 8
# smallest margin, relative to the mean norm of the embeddings, that counts as separable
MARGIN = 1e-3


@dataclass(frozen=True)
class LinearReadouts:
    """R^2 of linear readouts from position embeddings, on held-out positions.

    Args:
        wavelengths: periods of the targets [tokens].
        ramp: target: the position itself, scaled to 0 .. 1.
        saws: target: a sawtooth of each wavelength.
        sines: target: a sine of each wavelength.
        bits: target: each binary digit, least significant first.
    """

    wavelengths: list[int]
    ramp: Float[ndarray, "groups"]
    saws: Float[ndarray, "groups wavelengths"]
    sines: Float[ndarray, "groups wavelengths"]
    bits: Float[ndarray, "groups wavelengths"]


@dataclass(frozen=True)
class EmbeddingProperties:
    """Properties of a model's position embeddings.

    Args:
        hull_distances: distance of each embedding from the convex hull of the others, relative to the mean norm.
        readouts: linear readouts.
        random_readouts: linear readouts from a random table: the control.
    """

    hull_distances: Float[ndarray, "n"]
    readouts: LinearReadouts
    random_readouts: LinearReadouts


def measure_position_embeddings(table: Float[Tensor, "n width"], seed: int) -> EmbeddingProperties:
    """Measure a table of position embeddings and a random control table.

    Raises:
        NotApplicable: fewer than 9 positions.
    """
    if len(table) <= GROUPS:
        raise NotApplicable(f"readouts from position embeddings need {GROUPS + 1} positions; got {len(table)}")
    drawn = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed))
    return EmbeddingProperties(
        hull_distances(table).numpy(), linear_readouts(table, seed), linear_readouts(drawn, seed)
    )


def hull_distances(table: Float[Tensor, "n width"]) -> Float[Tensor, "n"]:
    """Distance of each position embedding from the convex hull of the others; 0 if it is inside.

    Scores are linear in the key's embedding: q . p_j. If p_j is a convex combination of others, one of these scores
    at least as high for every query, so that no head can attend to position j alone. A scalar position in [0, 1] has
    two separable positions: its ends.

    Returns:
        The distance, relative to the mean norm of the centred embeddings; 0 below `MARGIN`.
    """
    own = table[:MAX_POSITIONS].double()
    centred = own - own.mean(0)
    # rotated to principal axes: an isometry, after which few columns hold all the variance
    centred = centred @ torch.linalg.svd(centred, full_matrices=False).Vh.T
    size = centred.norm(dim=1).mean().clamp(min=1e-300)
    allowed = ~torch.eye(len(own), dtype=torch.bool, device=own.device)
    away = hull_distance_bound(centred, centred, allowed, 200) / size
    return torch.where(away > MARGIN, away, 0.0).cpu()


def linear_readouts(table: Float[Tensor, "n width"], seed: int) -> LinearReadouts:
    """Ridge regression from position embeddings, fitted to a random half of the positions; position 0 is left out.

    Args:
        table: the embedding of each position.
        seed: seed of the random halves.
    """
    # in many trained tables the first embedding is an outlier
    own = table[1 : MAX_POSITIONS + 1].double()
    count = len(own) // GROUPS * GROUPS
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))[:count]
    places, rows = order.view(GROUPS, -1).double(), own.cpu()[order].view(GROUPS, count // GROUPS, -1)
    wavelengths = [2**power for power in range(1, int(math.log2(len(own))) + 1)]

    def score(targets: Tensor) -> ndarray:
        return ridge_r2(rows, targets).numpy()

    return LinearReadouts(
        wavelengths,
        score(places / len(own)),
        np.stack([score(sawtooth(places, period)) for period in wavelengths], 1),
        np.stack([score((2 * math.pi * (places + 0.5) / period).sin()) for period in wavelengths], 1),
        np.stack([score((places // (period // 2)) % 2) for period in wavelengths], 1),
    )


def sawtooth(places: Float[Tensor, "*n"], period: int) -> Float[Tensor, "*n"]:
    """Sawtooth in [0, 1): the phase of each position within its period.

    Fourier series: 1/2 - sum over n of sin(2 pi n i / period) / (pi n): integer multiples of one frequency, with
    decreasing amplitudes. Sinusoidal embeddings have other frequencies, 1 / theta^(2 m / width), of equal amplitude.
    """
    return places % period / period
