"""How the variance of vectors is shared between the places they stand at, the texts they stand in, and the rest."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Shares(NamedTuple):
    """Parts of a variance; they sum to 1, and each is free of bias up to that of a ratio.

    Args:
        place: what all texts have in common at a place.
        text: what all places of a text have in common.
        rest: what is left: the token itself and what both together make of it.
    """

    place: float
    text: float
    rest: float


class Products(NamedTuple):
    """All that the shares are made of: inner products of each two texts.

    Args:
        moving: of the vectors of each place, after a text's own mean is taken off, summed over places.
        means: of the means of the texts.
        places: how many places there are.
    """

    moving: Float[Tensor, "texts texts"]
    means: Float[Tensor, "texts texts"]
    places: int


def products(x: Float[Tensor, "texts places width"]) -> Products:
    """The inner products of each two texts."""
    wide = x.double()
    # far from nought, squares would lose what is looked for
    wide = wide - wide.mean((0, 1))
    means = wide.mean(1)
    moving = (wide - means[:, None]).flatten(1)
    return Products(moving @ moving.T, means @ means.T, x.shape[1])


def shares(found: Products) -> Shares:
    """The parts of the variance, by analysis of variance with places and texts crossed.

        x[c, t] = m + place_t + text_c + rest
        place = (MS_place - MS_rest) / texts,    text = (MS_text - MS_rest) / places,    rest = MS_rest

    The mean of any texts differs from place to place by chance alone; a raw share would call that position. What is
    taken off is what chance gives, so vectors that know no place give 0 on average, now and then less.

    Source: Searle, Casella and McCulloch 1992, Variance Components, section 4.3.
    """
    places, texts = found.places, len(found.moving)
    total, common = float(found.moving.trace()), float(found.moving.sum()) / texts
    rest = (total - common) / (texts - 1) / (places - 1)
    place = (common / (places - 1) - rest) / texts
    between = (float(found.means.trace()) - float(found.means.sum()) / texts) / (texts - 1)
    text = between - rest / places
    whole = place + text + rest
    return Shares(place / whole, text / whole, rest / whole) if whole > 0 else Shares(0.0, 0.0, 0.0)


def place_share(x: Float[Tensor, "texts places width"]) -> Float[Tensor, "texts"]:
    """The share of places, as a number for each text whose mean it is: the pseudo-values of the jackknife.

        n s - (n - 1) s without this text

    Drawing texts twice, as the bootstrap does, would make them look alike at each place; leaving them out does not.

    Args:
        x: vectors, three texts or more.
    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 11.
    """
    found = products(x)
    count, whole = len(x), shares(found).place
    apart = []
    for text in range(count):
        kept = torch.arange(count) != text
        moving, means = (matrix[kept][:, kept] for matrix in (found.moving, found.means))
        apart.append(count * whole - (count - 1) * shares(Products(moving, means, found.places)).place)
    return torch.tensor(apart, dtype=torch.float64)
