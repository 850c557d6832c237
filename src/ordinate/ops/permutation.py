"""What chance alone gives: signs or places are drawn at random, and the number is computed again."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

PERMUTATIONS = 999


@dataclass(frozen=True)
class Tested:
    """A number beside those that chance gave.

    Args:
        value: the number.
        p: how often chance gave one as far from nought or farther, itself counted.
        low: below it lie 2.5 % of what chance gave.
        high: above it lie 2.5 %.
    """

    value: float
    p: float
    low: float
    high: float


def sign_flips(
    values: Float[ndarray, "texts *what"], seed: int, permutations: int = PERMUTATIONS
) -> tuple[Float[ndarray, "*what"], Float[ndarray, "permutations *what"]]:
    """The p-value of each mean (two-sided), and the means when each text's sign is drawn at random.

    Under no effect a paired difference is as likely up as down, so its sign carries nothing.

    Args:
        values: a paired difference, or several, for each text.
        seed: of the signs.
        permutations: how often they are drawn.
    """
    values = np.asarray(values, float)
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (permutations, len(values)))
    drawn = np.tensordot(signs / len(values), values, axes=1)
    # sums of the same numbers in another order differ in their last digits
    reached = np.abs(drawn) >= np.abs(values.mean(0)) * (1 - 1e-12)
    return np.asarray((reached.sum(0) + 1) / (permutations + 1)), drawn


def mantel(
    one: Float[ndarray, "n n"], other: Float[ndarray, "n n"], seed: int, permutations: int = PERMUTATIONS
) -> Tested:
    """The correlation of the pairs of two symmetric matrices of distances, tested by naming the rows anew.

    Pairs share rows and are not independent: so rows and columns of one matrix are permuted together.

    Args:
        one: distances; the diagonal has no say.
        other: distances between the same things.
        seed: of the permutations.
        permutations: how many.
    Source: Mantel 1967, Cancer Research 27:209.
    """
    rows, columns = np.triu_indices(len(one), 1)
    own = _standard(np.asarray(one, float)[rows, columns])
    other = np.asarray(other, float)
    theirs = _standard(other[rows, columns])
    mean, spread = other[rows, columns].mean(), other[rows, columns].std()
    value = float(own @ theirs / len(own))
    random = np.random.default_rng(seed)
    drawn = np.empty(permutations)
    for turn in range(permutations):
        order = random.permutation(len(other))
        drawn[turn] = own @ ((other[order[rows], order[columns]] - mean) / (spread or 1.0)) / len(own)
    p = float((np.abs(drawn) >= abs(value) * (1 - 1e-12)).sum() + 1) / (permutations + 1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Tested(value, p, float(low), float(high))


def ranks(values: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
    """The rank of each value from 0; equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[place]


def _standard(values: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
    spread = values.std()
    return (values - values.mean()) / (spread if spread > 0 else 1.0)
