"""Whether position and tokens keep to directions of their own in the residual stream, and which of them are read."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.measures.codes import Code, code_of
from ordinate.measures.whereabouts import directions
from ordinate.ops.bootstrap import percentiles
from ordinate.ops.overlap import by_chance, cosines, frame, frames, overlap
from ordinate.subject import Subject, Unfit

ENERGIES = (0.9, 0.95, 0.99)
MOST = 64

Stream = Float[Tensor, "texts places width"]


@dataclass(frozen=True)
class Inside:
    """How much of position lies in the directions of tokens.

    Args:
        share: of its squares, as a number for each text whose mean it is; None where no position shows.
        chance: what it is on average where position has any directions.
        low: between this
        high: and this 95 times in 100.
        directions: how many the tokens have.
    """

    share: Float[ndarray, "texts"] | None
    chance: float
    low: float
    high: float
    directions: int


def inside(x: Stream, energy: float, seed: int) -> Inside:
    """How much of what places have in common lies in the directions that hold so much of what tokens differ by.

        sum over t of U p_t . U x_t / sum over t of p_t . x_t,    p_t the mean of the other texts

    The other texts' means are products with this text's vectors, so that chance adds nothing, on average.

    Args:
        x: the stream at some places.
        energy: how much of what tokens differ by their directions hold.
        seed: of what chance gives.
    """
    tokens, places = parted(x)
    own = frame(tokens.flatten(0, 1), energy)
    wide = x.double() - x.double().mean((0, 1))
    wide = wide - wide.mean(1, keepdim=True)
    others = (wide.sum(0) - wide) / (len(x) - 1)
    whole = (others * wide).sum((1, 2)).numpy()
    part = ((others @ own.T) * (wide @ own.T)).sum((1, 2)).numpy()
    sizes = torch.linalg.svdvals(places).square()
    drawn = by_chance(sizes, len(own), x.shape[2], seed)
    low, high = percentiles(drawn)
    known = whole.mean() > 3 * whole.std(ddof=1) / len(whole) ** 0.5
    ratio = part.mean() / whole.mean() if known else 0.0
    # a ratio of means as a mean over texts: linear in each text's two numbers
    share = ratio + (part - ratio * whole) / whole.mean() if known else None
    return Inside(share, len(own) / x.shape[2], float(low), float(high), len(own))


def parted(x: Stream) -> tuple[Stream, Float[Tensor, "places width"]]:
    """What tokens differ by at the same place, and what places differ by on average."""
    wide = x.double()
    means = wide.mean(0)
    return wide - means, means - means.mean(0)


def of_tables(
    places: Float[Tensor, "n width"], tokens: Float[Tensor, "vocabulary width"], seed: int
) -> list[tuple[float | int, ...]]:
    """The two tables that a model adds up: how much their directions have in common, at several energies.

    Returns:
        For each energy: it, the directions of each, the overlap, what chance makes it, its middle 95 %, and the
        cosine of the smallest angle.
    """
    found, width = [], places.shape[1]
    one, other = (table.double().cpu() - table.double().cpu().mean(0) for table in (places, tokens))
    for energy, a, b in zip(ENERGIES, frames(one, ENERGIES), frames(other, ENERGIES), strict=True):
        less, more = sorted((len(a), len(b)))
        low, high = percentiles(by_chance(torch.ones(less), more, width, seed))
        row = (energy, len(a), len(b), overlap(a, b), more / width, float(low), float(high))
        found.append((*row, float(cosines(a, b)[0])))
    return found


def selectivity(subject: Subject, x: Stream, energy: float, reasons: dict[str, str]) -> dict[str, float]:
    """How much of what the first layer reads is in the directions of position, over their share of all directions.

        (|U W|^2 / |W|^2) / (directions / width)

    If positions were concatenated, rows of W of their own would read them; added to the tokens, the same W reads
    both, through the directions in which positions differ. 1: it reads these as much as any others.

    Args:
        subject: the model.
        x: the stream as it enters the first layer.
        energy: how much of what places differ by their directions hold.
        reasons: is told why it was not measured; nothing is then found.
    """
    try:
        own = subject.projection(0)
    except Unfit as reason:
        reasons["what matrices read"] = str(reason)
        return {}
    rows, found = directions(x, energy, MOST), {}
    for name, matrix in (("queries", own.query), ("keys", own.key), ("values", own.value)):
        # one norm's gain serves all columns
        folded = (own.gain[:, None] * matrix).double().cpu().transpose(0, 1).flatten(1)
        read = float((rows @ folded).square().sum() / folded.square().sum().clamp(min=1e-300))
        found[name] = read * x.shape[2] / len(rows)
    return found


def tables_and_code(
    subject: Subject, length: int, seed: int, reasons: dict[str, str]
) -> tuple[list[tuple[float | int, ...]], Code | None]:
    """The overlap of the tables that are added up, and what that of positions allows; nothing where none is."""
    tables, code = [], None
    try:
        places = subject.position_table(length)
        code = code_of(places, seed)
        tables = of_tables(places, subject.token_table(), seed)
    except Unfit as reason:
        reasons["code of positions" if code is None else "overlap of the tables"] = str(reason)
    return tables, code
