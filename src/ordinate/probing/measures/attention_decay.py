"""Decay of attention with distance: an exponential fitted to each head, and how much of its profile that explains."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from ordinate.ops.stats.bootstrap import mean_intervals
from ordinate.probing.measures.attention_by_offset import AttentionProfile, Pairs, offset_sums

# slopes at which the expected distance is tabulated, between which it is interpolated [per token]
SLOPES = np.geomspace(1e-5, 20.0, 160)

HeadValues = Float[ndarray, "layers h"]


@dataclass(frozen=True)
class DecayFit:
    """Exponential decay fitted to each head.

    Args:
        slope: decrease of log(attention) per token of distance; negative: attention grows with distance.
        low: lower end of its 95 % confidence interval.
        high: upper end.
        explained: share of the profile's divergence from uniform attention that the decay explains; at most 1.
    """

    slope: HeadValues
    low: HeadValues
    high: HeadValues
    explained: HeadValues


def fit_decay(seen: AttentionProfile, seed: int) -> DecayFit:
    """Fit an exponential decay over the keys other than a query's own and the first, by maximum likelihood.

        a(i, j) proportional to exp(-slope |i - j|),    sum_ij a |i - j| = the mean distance measured

    An exponential family is fitted where it has the measured mean distance. The share explained is 1 - KL(p | fit) /
    KL(p | uniform), with p the attention by offset: 1 for ALiBi alone.

    Args:
        seen: attention by offset.
        seed: seed of the bootstrap over texts.
    """
    slopes = np.concatenate([-SLOPES[::-1], [0.0], SLOPES])
    distinct = {id(pairs): pairs for pairs in seen.pairs}
    tables = {key: _expected_distances(pairs, slopes) for key, pairs in distinct.items()}
    slope, low, high = (np.empty(seen.distance.shape[1:]) for _ in range(3))
    explained = np.empty_like(slope)
    for place in np.ndindex(*slope.shape):
        # falls as the slope rises
        rows, own, pairs = seen.rows[:, *place], seen.distance[:, *place], seen.pairs[place[0]]
        of_rows = tables[id(pairs)]
        expected = of_rows @ rows.mean(0)
        # how each text divides its attention between queries moves its mean distance too, as that of the fit
        fitted = rows @ np.array([np.interp(own.mean(), expected[::-1], row[::-1]) for row in of_rows.T])
        measured = [float(x) for x in mean_intervals(own - fitted + fitted.mean(), seed)]
        slope[place], high[place], low[place] = (np.interp(x, expected[::-1], slopes[::-1]) for x in measured)
        explained[place] = _explained(pairs, rows.mean(0), seen.shares[place], slope[place])
    return DecayFit(slope, low, high, explained)


def _expected_distances(pairs: Pairs, slopes: Float[ndarray, "slopes"]) -> Float[ndarray, "slopes n"]:
    """Mean distance of the keys that each query attends to, under a decay of each slope."""
    return torch.stack([(pairs.decaying(slope) * pairs.distance).sum(-1) for slope in slopes]).numpy()


def _explained(pairs: Pairs, rows: Float[ndarray, "n"], shares: Float[ndarray, "all_offsets"], slope: float) -> float:
    weights = torch.from_numpy(rows)
    fitted = offset_sums(weights[:, None] * pairs.decaying(slope)).numpy()
    even = pairs.over_queries(weights / pairs.keys.clamp(min=1)).numpy()
    whole = _divergence(shares, even)
    return 1 - _divergence(shares, fitted) / whole if whole > 1e-12 else 0.0


def _divergence(one: Float[ndarray, "n"], other: Float[ndarray, "n"]) -> float:
    """KL(one | other) of two distributions [nats]."""
    kept = one > 0
    return float((one[kept] * np.log(one[kept] / np.maximum(other[kept], 1e-300))).sum())
