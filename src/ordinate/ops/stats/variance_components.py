"""Variance components of vectors: position, text and residual (two-way analysis of variance)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class VarianceShares(NamedTuple):
    """Shares of the variance; they sum to 1, and are unbiased up to the bias of a ratio.

    Args:
        place: main effect of the position, common to all texts.
        text: main effect of the text, common to all its positions.
        rest: residual: the token itself, and interactions of position and text.
    """

    place: float
    text: float
    rest: float


class InnerProducts(NamedTuple):
    """Sufficient statistics of the variance components: inner products between texts.

    Args:
        moving: of the vectors less the mean of their text, summed over positions.
        means: of the means of the texts.
        places: number of positions.
    """

    moving: Float[Tensor, "texts texts"]
    means: Float[Tensor, "texts texts"]
    places: int


def inner_products(x: Float[Tensor, "texts places width"]) -> InnerProducts:
    """Return the inner products between texts."""
    wide = x.double()
    # centred first: squares of a large common mean would cancel
    wide = wide - wide.mean((0, 1))
    means = wide.mean(1)
    moving = (wide - means[:, None]).flatten(1)
    return InnerProducts(moving @ moving.T, means @ means.T, x.shape[1])


def variance_shares(found: InnerProducts) -> VarianceShares:
    """Estimate the variance components by a crossed two-way analysis of variance of positions and texts.

        x[c, t] = m + place_t + text_c + rest
        place = (MS_place - MS_rest) / texts,    text = (MS_text - MS_rest) / places,    rest = MS_rest

    Means over a finite number of texts vary between positions by chance, which a raw share would attribute to
    position. The expected amount is subtracted: vectors without position information give 0 on average, and sometimes
    a negative value.

    Source: Searle, Casella and McCulloch 1992, Variance Components, section 4.3.
    """
    places, texts = found.places, len(found.moving)
    total, common = float(found.moving.trace()), float(found.moving.sum()) / texts
    rest = (total - common) / (texts - 1) / (places - 1)
    place = (common / (places - 1) - rest) / texts
    between = (float(found.means.trace()) - float(found.means.sum()) / texts) / (texts - 1)
    text = between - rest / places
    whole = place + text + rest
    return VarianceShares(place / whole, text / whole, rest / whole) if whole > 0 else VarianceShares(0.0, 0.0, 0.0)


def position_share(x: Float[Tensor, "texts places width"]) -> Float[Tensor, "texts"]:
    """Share of position as one value per text: jackknife pseudo-values, whose mean estimates the share.

        n s - (n - 1) s without this text

    The bootstrap would draw texts twice, and duplicates look like an effect of position; leaving texts out does not.

    Args:
        x: vectors, three texts or more.
    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 11.
    """
    found = inner_products(x)
    count, whole = len(x), variance_shares(found).place
    apart = []
    for text in range(count):
        kept = torch.arange(count) != text
        moving, means = (matrix[kept][:, kept] for matrix in (found.moving, found.means))
        apart.append(count * whole - (count - 1) * variance_shares(InnerProducts(moving, means, found.places)).place)
    return torch.tensor(apart, dtype=torch.float64)
