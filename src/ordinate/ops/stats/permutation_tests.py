"""Permutation tests: sign flips of one or many means, and the Mantel test of two distance matrices."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.checks import need

PERMUTATIONS = 999
MOST_EXACT = 20
# columns that are summed at once
TESTS_AT_ONCE = 4096


@dataclass(frozen=True)
class PermutationTest:
    """A statistic with its permutation p-value and null interval.

    Args:
        value: the observed statistic.
        p: two-sided p-value: share of values under the null at least as far from 0, the observed one included.
        low: 2.5th percentile of the null distribution.
        high: 97.5th percentile.
    """

    value: float
    p: float
    low: float
    high: float


def sign_flip_test(
    values: Float[ndarray, "texts *what"], seed: int, permutations: int = PERMUTATIONS
) -> tuple[Float[ndarray, "*what"], Float[ndarray, "permutations *what"]]:
    """Sign-flip test of means of paired differences: two-sided p-values, and the means under the null.

    Under the null hypothesis a paired difference is symmetric around 0, so the sign of each text can be redrawn.

    Args:
        values: one or several paired differences for each text.
        seed: of the signs.
        permutations: number of draws.
    """
    values = np.asarray(values, float)
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (permutations, len(values)))
    drawn = np.tensordot(signs / len(values), values, axes=1)
    # ties must count as reached, although sums in another order differ by rounding
    reached = np.abs(drawn) >= np.abs(values.mean(0)) * (1 - 1e-12)
    return np.asarray((reached.sum(0) + 1) / (permutations + 1)), drawn


def exact_sign_flip_test(values: Float[ndarray, "texts *what"]) -> Float[ndarray, "*what"]:
    """Sign-flip test by all 2^n signs: one-sided p-values of the hypothesis that a mean difference is not above 0.

    With few texts the smallest p-value, 2^-n, is far below that of drawn signs, as many corrected tests need.

    Args:
        values: one or several paired differences for each of at most 20 texts.

    Raises:
        ValueError: no text, or more than 20.
    Source: Fisher 1935, The Design of Experiments, section 21.
    """
    values = np.asarray(values, float)
    count = len(values)
    need(0 < count <= MOST_EXACT, f"all signs are tried of 1 to {MOST_EXACT} texts", f"got {count}", "draw signs")
    flat = values.reshape(count, -1)
    p = np.empty(flat.shape[1])
    # every sum is one of the first half of the texts plus one of the second
    halves = [_signs(count // 2), _signs(count - count // 2)]
    for place, own in enumerate(flat.T):
        first, second = halves[0] @ own[: count // 2], np.sort(halves[1] @ own[count // 2 :])
        # ties must count as reached, although sums in another order differ by rounding
        least = own.sum() - 1e-12 * np.abs(own).sum() - first
        p[place] = (len(second) - np.searchsorted(second, least, side="left")).sum() / 2.0**count
    return p.reshape(values.shape[1:])


def largest_mean_test(
    values: Float[ndarray, "texts tests"], seed: int, permutations: int = PERMUTATIONS
) -> Float[ndarray, "tests"]:
    """Test whether means over texts are above 0, corrected over all tests: one-sided adjusted p-values.

        T = sum over texts of x / sqrt(sum of x^2),    p = share of draws whose largest T is at least this one

    Each text's sign is flipped in all tests at once, which keeps their dependence. The denominator is the same under
    flips. The error over the family of tests is at most the level where values are symmetric around their means, and
    below it where they are skewed to the right. With n texts no p-value is below about 2^-n.

    Args:
        values: one value for each text and test.
        seed: of the signs.
        permutations: number of draws.
    Source: Westfall and Young 1993, Resampling-Based Multiple Testing, single-step maxT.
    """
    sizes = np.sqrt((values**2).sum(0))
    unit = np.divide(values, sizes, out=np.zeros_like(values, float), where=sizes > 0)
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (permutations, len(values)))
    largest = np.full(permutations, -np.inf)
    # in parts: all draws of many tests would not fit into memory
    for start in range(0, unit.shape[1], TESTS_AT_ONCE):
        largest = np.maximum(largest, (signs @ unit[:, start : start + TESTS_AT_ONCE]).max(1))
    # ties must count as reached, although sums in another order differ by rounding
    reached = permutations - np.searchsorted(np.sort(largest), unit.sum(0) - 1e-12)
    return (reached + 1) / (permutations + 1)


def mantel_test(
    one: Float[ndarray, "n n"], other: Float[ndarray, "n n"], seed: int, permutations: int = PERMUTATIONS
) -> PermutationTest:
    """Mantel test: correlation of two symmetric distance matrices, with a permutation p-value.

    Pairs that share a row are not independent; so rows and columns of one matrix are permuted together.

    Args:
        one: distances; the diagonal is ignored.
        other: distances between the same items.
        seed: of the permutations.
        permutations: number of permutations.
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
    return PermutationTest(value, p, float(low), float(high))


def ranks(values: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
    """Return the rank of each value, from 0; ties share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[place]


def _standard(values: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
    spread = values.std()
    return (values - values.mean()) / (spread if spread > 0 else 1.0)


def _signs(count: int) -> Float[ndarray, "signs texts"]:
    """Return all sign patterns of so many texts, one a row."""
    return 1.0 - 2.0 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
