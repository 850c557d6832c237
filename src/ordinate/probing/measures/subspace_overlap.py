"""Subspace overlap: position and token directions in the residual stream, and which of them the projections read."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.overlap import (
    null_overlaps,
    principal_cosines,
    principal_subspace,
    principal_subspaces,
    subspace_overlap,
)
from ordinate.ops.stats.bootstrap import percentiles
from ordinate.ops.stats.variance_components import ShareEstimate, position_share, ratio_over_pairs
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing.measures.measured import Measured
from ordinate.probing.measures.position_codes import EmbeddingProperties, measure_position_embeddings
from ordinate.probing.measures.residual_stream import position_directions

ENERGIES = (0.9, 0.95, 0.99)
MAX_DIRECTIONS = 64
# confidence at which a share of the variance above 0 counts as position information
DETECTABLE = 0.997

Stream = Float[Tensor, "texts places width"]


@dataclass(frozen=True)
class SubspaceShare:
    """Share of the position variance inside the token subspace.

    Args:
        share: the share with its confidence interval over texts; None if no position information is detectable.
        chance: expected share for random position directions.
        low: lower end of the central 95 % interval for random directions.
        high: upper end.
        position_directions: dimension of the token subspace.
    """

    share: ShareEstimate | None
    chance: float
    low: float
    high: float
    position_directions: int


def position_share_in_token_subspace(x: Stream, energy: float, seed: int) -> SubspaceShare:
    """Share of the position variance inside the token subspace, from products of different texts.

        mean over pairs of texts of sum over t of U x_it . U x_jt / the same without U,    x_i less its mean over t

    Products of two texts have no noise bias, unlike squares. Position is detectable if its share of the variance is
    above 0 at the level `DETECTABLE`.

    Args:
        x: residual-stream vectors at some positions.
        energy: share of the token variance that the token subspace holds.
        seed: seed of the null distribution.
    """
    tokens, places = split_position_and_token(x)
    own = principal_subspace(tokens.flatten(0, 1), energy)
    wide = x.double() - x.double().mean((0, 1))
    wide = wide - wide.mean(1, keepdim=True)
    sizes = torch.linalg.svdvals(places).square()
    low, high = percentiles(null_overlaps(sizes, len(own), x.shape[2], seed))
    share, chance = None, len(own) / x.shape[2]
    if len(x) > 2 and position_share(x, DETECTABLE).low > 0:
        whole, part = (vectors.flatten(1) @ vectors.flatten(1).T for vectors in (wide, wide @ own.T))
        share = ratio_over_pairs(part, whole)
    return SubspaceShare(share, chance, float(low), float(high), len(own))


def split_position_and_token(x: Stream) -> tuple[Stream, Float[Tensor, "places width"]]:
    """Split into deviations from the position mean (token), and centred position means (position)."""
    wide = x.double()
    means = wide.mean(0)
    return wide - means, means - means.mean(0)


def embedding_overlaps(
    places: Float[Tensor, "n width"], tokens: Float[Tensor, "vocabulary width"], seed: int
) -> list[tuple[float | int, ...]]:
    """Overlap of the subspaces of position and token embeddings, at several shares of their energy.

    Returns:
        A row for each share: the share, the two dimensions, the overlap, its expectation and central 95 % interval
        for random subspaces, and the cosine of the smallest principal angle.
    """
    found, width = [], places.shape[1]
    one, other = (table.double().cpu() - table.double().cpu().mean(0) for table in (places, tokens))
    for energy, a, b in zip(
        ENERGIES, principal_subspaces(one, ENERGIES), principal_subspaces(other, ENERGIES), strict=True
    ):
        less, more = sorted((len(a), len(b)))
        low, high = percentiles(null_overlaps(torch.ones(less), more, width, seed))
        row = (energy, len(a), len(b), subspace_overlap(a, b), more / width, float(low), float(high))
        found.append((*row, float(principal_cosines(a, b)[0])))
    return found


def position_selectivity(subject: ModelAdapter, x: Stream, energy: float) -> dict[str, float]:
    """Energy of the first layer's projections in the position subspace, relative to its share of dimensions.

        (|U W|^2 / |W|^2) / (directions / width)

    Concatenated positions would have rows of W of their own; added ones are read by the same W through the
    directions in which positions differ. 1: as much as a random subspace.

    Args:
        subject: the model.
        x: residual stream at the input of the first layer.
        energy: share of the variance of position means that the position subspace holds.

    Raises:
        NotApplicable: the projections cannot be extracted.
    """
    own = subject.projection(0)
    rows, found = position_directions(x, energy, MAX_DIRECTIONS), {}
    for name, matrix in (("queries", own.query), ("keys", own.key), ("values", own.value)):
        # fold in the weight of the preceding norm
        folded = (own.norm_weight[:, None] * matrix).double().cpu().transpose(0, 1).flatten(1)
        read = float((rows @ folded).square().sum() / folded.square().sum().clamp(min=1e-300))
        found[name] = read * x.shape[2] / len(rows)
    return found


def embedding_overlap_and_properties(
    subject: ModelAdapter, length: int, seed: int
) -> Measured[tuple[list[tuple[float | int, ...]], EmbeddingProperties | None]]:
    """Overlap of position and token embeddings, and properties of the former; empty if there are none."""
    tables, code, missing = [], None, {}
    try:
        places = subject.position_table(length)
        code = measure_position_embeddings(places, seed)
        tables = embedding_overlaps(places, subject.token_table(), seed)
    except NotApplicable as reason:
        missing["position embeddings" if code is None else "overlap of token and position embeddings"] = str(reason)
    return Measured((tables, code), missing)
