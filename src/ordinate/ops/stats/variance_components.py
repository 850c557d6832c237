"""Variance components of vectors: position, text and residual (two-way analysis of variance)."""

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.stats.bootstrap import LEVEL, student_quantile

# fewest texts whose pairs tell how much a share varies between texts
FEWEST = 16


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


class ShareEstimate(NamedTuple):
    """A share of the variance with its confidence interval.

    Args:
        value: the share.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float


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


def position_share(x: Float[Tensor, "texts places width"], level: float = LEVEL) -> ShareEstimate:
    """Share of position in the variance, with its confidence interval over texts.

        share = U / W,    U, W: means over pairs of texts of k_ij = <x_i, x_j> / (places - 1) and of w_ij

    x_i is text i less its mean, w_ij the variance within and between two texts. The estimate is a ratio of
    U-statistics: without position each text by itself says nothing, and only pairs of texts contribute.

    Args:
        x: vectors, three texts or more.
        level: of confidence.
    """
    found = inner_products(x)
    alike, means = found.moving / (found.places - 1), found.means.diagonal()
    own = (alike.diagonal()[:, None] + alike.diagonal()) / 2
    whole = own - (own - alike) / found.places + (means[:, None] + means) / 2 - found.means
    return ratio_over_pairs(alike, whole, level)


def ratio_over_pairs(
    part: Float[Tensor, "texts texts"], whole: Float[Tensor, "texts texts"], level: float = LEVEL
) -> ShareEstimate:
    """Ratio of two means over pairs of different texts, with its confidence interval over texts.

        share = U / W,    U, W: means of k_ij and w_ij over i != j
        half width^2 = (4 (n - 2) t^2 v_1 + 2 z^2 v_2) / (n (n - 1)),    r_ij = (k_ij - share w_ij) / W
        v_2 = mean r_ij^2,    v_1 = n / (n - 4) mean over i and j != l of r_ij r_il, at least 0

    t and z are the quantiles of Student's distribution of n - 1 degrees and of the normal one. A bootstrap would draw
    texts twice, and duplicates look like an effect of position; the jackknife counts v_2 twice. Of fewer than 16
    texts the interval is that of the jackknife all the same: v_1 is then too uncertain, and with 3 texts this
    interval would hold the share in 60 % of cases.

    Args:
        part: k, symmetric; the diagonal is not used.
        whole: w, symmetric.
        level: of confidence.
    Source: Hoeffding 1948, A class of statistics with asymptotically normal distribution, section 5; jackknife:
        Arvesen 1969, Jackknifing U-statistics, https://doi.org/10.1214/aoms/1177697287.
    Departs: v_1 is corrected for the residuals r_ij, whose mean is 0.
    """
    count = len(part)
    apart = ~torch.eye(count, dtype=torch.bool)
    size = float(whole[apart].mean())
    if size <= 0:
        return ShareEstimate(0.0, 0.0, 0.0)
    value = float(part[apart].mean()) / size
    if count < FEWEST:
        half = _jackknife_half_width(part.where(apart, 0.0), whole.where(apart, 0.0), level)
        return ShareEstimate(value, value - half, value + half)
    residual = torch.where(apart, part - value * whole, 0.0) / size
    squares, rows = float(residual.square().sum()), float(residual.sum(1).square().sum())
    pairs = count * (count - 1)
    by_text = max(0.0, rows - squares) / (pairs * (count - 2)) * count / max(count - 4, 1)
    # pairs are many: their part has a normal quantile
    t, z = student_quantile((1 + level) / 2, count - 1), NormalDist().inv_cdf((1 + level) / 2)
    half = math.sqrt((t**2 * 4 * (count - 2) * by_text + z**2 * 2 * squares / pairs) / pairs)
    return ShareEstimate(value, value - half, value + half)


def _jackknife_half_width(
    part: Float[Tensor, "texts texts"], whole: Float[Tensor, "texts texts"], level: float
) -> float:
    """Half the width of the jackknife interval of a ratio of sums over pairs, whose diagonals are 0."""
    count = len(part)
    # without a text its row and its column are missing
    left = (part.sum() - 2 * part.sum(1)) / (whole.sum() - 2 * whole.sum(1))
    spread = float((count - 1) * left.var(correction=0))
    return student_quantile((1 + level) / 2, count - 1) * math.sqrt(spread)
