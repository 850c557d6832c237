"""What a code of positions allows: which places a head can single out, and what is read from it linearly."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.hull import beyond
from ordinate.ops.readout import ridge

# rows that are looked at, and groups that they are read in
LONGEST, GROUPS = 128, 8
# a place is singled out where a plane separates it from the others by this much of the code's size
MARGIN = 1e-3


@dataclass(frozen=True)
class ReadOut:
    """What is read from a code linearly, as R^2 of places that the reading was not fitted to.

    Args:
        wavelengths: of the sawtooth [tokens].
        ramp: of the place itself, as a number from 0 to 1.
        saws: of the sawtooth at each wavelength.
        sines: of a sine at each wavelength.
        bits: of each binary digit, the last one first.
    """

    wavelengths: list[int]
    ramp: Float[ndarray, "groups"]
    saws: Float[ndarray, "groups wavelengths"]
    sines: Float[ndarray, "groups wavelengths"]
    bits: Float[ndarray, "groups wavelengths"]


@dataclass(frozen=True)
class Code:
    """What the code allows that a model adds to its tokens.

    Args:
        single: how far each place is outside the hull of the others.
        own: what is read from it.
        random: what is read from random numbers in its place.
    """

    single: Float[ndarray, "n"]
    own: ReadOut
    random: ReadOut


def code_of(table: Float[Tensor, "n width"], seed: int) -> Code:
    """What a code allows, beside random numbers."""
    drawn = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed))
    return Code(singled_out(table).numpy(), read_out(table, seed), read_out(drawn, seed))


def singled_out(table: Float[Tensor, "n width"]) -> Float[Tensor, "n"]:
    """Which places some head can give nearly all its weight: those that are no mean of the others.

    Scores are linear in the code of a key: q . p_j. Where p_j lies between others, one of these has a score as high,
    whatever the query. A number from 0 to 1 has two such places, its ends.

    Returns:
        How far each code is outside the hull of the others, as a share of the size of the code; 0: it is within.
    """
    own = table[:LONGEST].double()
    centred = own - own.mean(0)
    # turned so that few columns hold all of it
    centred = centred @ torch.linalg.svd(centred, full_matrices=False).Vh.T
    size = centred.norm(dim=1).mean().clamp(min=1e-300)
    allowed = ~torch.eye(len(own), dtype=torch.bool, device=own.device)
    away = beyond(centred, centred, allowed, 200) / size
    return torch.where(away > MARGIN, away, 0.0).cpu()


def read_out(table: Float[Tensor, "n width"], seed: int) -> ReadOut:
    """What ridge regression reads from a code, fitted to one half of the places, drawn at random; but of the first.

    Args:
        table: the code of each place.
        seed: of the halves.
    """
    # the first place of many trained tables is unlike all others
    own = table[1 : LONGEST + 1].double()
    count = len(own) // GROUPS * GROUPS
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))[:count]
    places, rows = order.view(GROUPS, -1).double(), own.cpu()[order].view(GROUPS, count // GROUPS, -1)
    wavelengths = [2**power for power in range(1, int(math.log2(len(own))) + 1)]

    def told(targets: Tensor) -> ndarray:
        return ridge(rows, targets).numpy()

    return ReadOut(
        wavelengths,
        told(places / len(own)),
        np.stack([told(saw(places, period)) for period in wavelengths], 1),
        np.stack([told((2 * math.pi * (places + 0.5) / period).sin()) for period in wavelengths], 1),
        np.stack([told((places // (period // 2)) % 2) for period in wavelengths], 1),
    )


def saw(places: Float[Tensor, "*n"], period: int) -> Float[Tensor, "*n"]:
    """A sawtooth: how far into its period each place is, from 0 to below 1.

    1/2 - sum over n of sin(2 pi n i / period) / (pi n): whole multiples of one rate, ever weaker. Sinusoidal codes
    have other rates, 1 / theta^(2 m / width), all of one strength.
    """
    return places % period / period
