"""Bounds of attention scores by norms, and of each query's sum of weights by its own score and recent keys."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, OffsetTable, Queries

# keys of a group, whose scores are averaged
GROUP = 64
# the latest groups, which are averaged
GROUPS = 8
# numbers per step: temporaries of a step stay in the processor's cache
STEP = 2**17


class ScoreBounds(NamedTuple):
    """Bounds of scores and of sums of weights.

    Args:
        reach: |q| |scale| of each query.
        norms: |k| of each key.
        least: the log of a lower bound of each query's sum of weights exp(score + bias).
    """

    reach: Float[Tensor, "b h i"]
    norms: Float[Tensor, "b g j"]
    least: Float[Tensor, "b h i"]

    @classmethod
    def of(cls, q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float) -> "ScoreBounds":
        """Compute the bounds, in the dtype of the table.

        The sum of weights is at least the larger of exp(s + bias[0]), with s the score of the own key, which must be
        visible, and the exponential of

            sum_j p_j (s_j + bias_j) - sum_j p_j log p_j

        over the last whole groups of `GROUP` keys up to the own key. This holds for any probabilities p (Gibbs'
        inequality): these are equal within a group, and from group to group near exp(bias), which are the best
        without scores. In packed texts, where a group may belong to another text, only the own key counts.

        Args:
            q: queries.
            k: keys; the last is that of the last query.
            table: bias by offset, -inf where masked.
            where: the geometry.
            scale: multiplies q.k.
        """
        type, own, groups = table.dtype, where.shape[0] - 1 + where.start, q.shape[1] // k.shape[1]
        count = 0 if where.q_document is not None else where.shape[0] // GROUP
        norms, means = _reduce_keys(k, where.start, count, type)
        recent = RecentGroups.of(table, own)
        grouped, mine = q.unflatten(1, (-1, groups)), k[:, :, None, where.start :]
        reach, scores, mean_scores = (x.flatten(1, 2) for x in _reduce_queries(grouped, mine, recent.averaged(means)))
        least = scores * scale + table[:, own, None]
        if count:
            seen = slice(GROUP - 1, None)
            added = mean_scores[..., seen] * scale + recent.added(count)[:, : least.shape[2] - GROUP + 1]
            least[..., seen] = least[..., seen].maximum(added)
        return cls(reach * abs(scale), norms, least)

    def largest_norm(self, spread: int) -> Float[Tensor, "b h 1"]:
        """Return a norm K for each query head, by which any `spread` consecutive keys are bounded together.

        For t = |q| scale of any query, and T the largest, the power means of c numbers give

            sum_j e^(t |k_j|) <= c e^(t K),    K = log(mean_j e^(T |k_j|)) / T

        K is the largest one of all groups of `spread` keys; with 1 it is the largest norm.
        """
        groups = self.reach.shape[1] // self.norms.shape[1]
        if spread == 1:
            return self.norms.amax(-1, keepdim=True).repeat_interleave(groups, 1)
        longest = self.reach.amax(-1, keepdim=True).clamp(min=torch.finfo(self.reach.dtype).tiny)
        padded = torch.nn.functional.pad(self.norms, (0, -self.norms.shape[2] % spread), value=-math.inf)
        padded = padded.unflatten(2, (-1, spread)).repeat_interleave(groups, 1)
        means = (padded * longest[..., None]).logsumexp(-1) - padded.isfinite().sum(-1).log()
        return (means / longest).amax(-1, keepdim=True)


class RecentGroups(NamedTuple):
    """Probabilities of the latest groups of each head, the latest first.

    Args:
        shares: of each group, by a common factor.
        totals: sums of the shares of 1, 2 and more groups.
        bonus: mean bias plus entropy for 1, 2 and more groups, by the keys between the query and the latest group.
    """

    shares: Float[Tensor, "h groups"]
    totals: Float[Tensor, "h groups"]
    bonus: Float[Tensor, "h groups behind"]

    @classmethod
    def of(cls, table: OffsetTable, own: int) -> "RecentGroups":
        """Return them from biases by offset, of which this entry is that of the own key."""
        size = GROUP * (GROUPS + 1)
        near = table[:, max(own + 1 - size, 0) : own + 1].flip(1)
        # farther keys do not exist: their biases are not read by any query
        near = torch.nn.functional.pad(near, (0, size - near.shape[1]), mode="replicate")
        biases = near.unfold(1, GROUP, 1).mean(-1)[:, :-1].unflatten(1, (GROUPS, GROUP))
        seen = biases.isfinite().all(2)
        logs = biases[..., 0].masked_fill(~seen, -math.inf)
        logs = logs - logs.amax(1, keepdim=True).nan_to_num(neginf=0.0)
        shares = logs.exp()
        totals = shares.cumsum(1)
        rest = torch.where(shares[..., None] > 0, biases - logs[..., None], 0.0) * shares[..., None]
        bonus = rest.cumsum(1) / totals[..., None] + totals.log()[..., None] + math.log(GROUP)
        return cls(shares, totals, bonus.masked_fill(totals[..., None] == 0, -math.inf))

    def averaged(self, means: Float[Tensor, "b g 1 n d"]) -> Float[Tensor, "b g r n d"]:
        """Return for each group the mean of its mean key and those before it."""
        count, shares = means.shape[3], self.shares.unflatten(0, (means.shape[1], -1)).to(means.dtype)
        found = means.new_zeros(*means.shape[:2], shares.shape[1], *means.shape[3:])
        for back in range(min(count, GROUPS)):
            found[..., back:, :] += shares[..., back, None, None] * means[..., : count - back, :]
        totals = self.totals[:, self._known(count)].unflatten(0, (means.shape[1], -1)).to(means.dtype)
        return (found / totals[..., None]).nan_to_num(0.0)

    def added(self, count: int) -> Float[Tensor, "h i"]:
        """Return mean bias plus entropy for the queries from the last of the first group on, of this many groups."""
        return self.bonus[:, self._known(count)].flatten(1)

    def _known(self, count: int) -> Tensor:
        return torch.arange(count, device=self.shares.device).clamp(max=GROUPS - 1)


def _reduce_keys(
    k: Keys, start: int, count: int, type: torch.dtype
) -> tuple[Float[Tensor, "b g j"], Float[Tensor, "b g 1 n d"]]:
    """Return the norms of all keys, and the means of `count` groups of keys from `start` on."""
    before, whole, after = k.tensor_split((start, start + count * GROUP), 2)
    norms, means = [_norm(before.to(type))], [k.new_zeros(*k.shape[:2], 0, k.shape[3], dtype=type)]
    for piece in whole.split(_step(k), 2):
        wide = piece.to(type)
        norms.append(_norm(wide))
        means.append(wide.unflatten(2, (-1, GROUP)).mean(3))
    norms.append(_norm(after.to(type)))
    return torch.cat(norms, 2), torch.cat(means, 2)[:, :, None]


def _reduce_queries(
    q: Float[Tensor, "b g r i d"], k: Float[Tensor, "b g 1 i d"], recent: Float[Tensor, "b g r n d"]
) -> tuple[Float[Tensor, "b g r i"], ...]:
    """Return norms, products with the own keys and with the latest whole group; 0 before the first group ends.

    Args:
        q: queries.
        k: their own keys.
        recent: one key for each whole group; none: there are no groups.
    """
    found: list[tuple[Tensor, ...]] = []
    step, queries = _step(q), q.shape[3]
    # the query from which on a group is whole is its last one
    vectors = torch.nn.functional.pad(recent, (0, 0, 1, 0))
    for begin in range(-1, queries, step):
        rows = slice(max(begin, 0), begin + step)
        asked, held = (x[..., rows, :].to(recent.dtype) for x in (q, k))
        groups = vectors[..., (begin + 1) // GROUP : (begin + 1 + step) // GROUP, :].repeat_interleave(GROUP, 3)
        groups = groups[..., rows.start - begin :, :][..., : asked.shape[3], :]
        mean_scores = (asked * groups).sum(-1) if recent.shape[3] else asked.new_zeros(asked.shape[:-1])
        found.append((_norm(asked), (asked * held).sum(-1), mean_scores))
    return tuple(torch.cat(parts, -1) for parts in zip(*found, strict=True))


def _norm(x: Float[Tensor, "*any d"]) -> Float[Tensor, "*any"]:
    return torch.linalg.vector_norm(x, dim=-1)


def _step(x: Tensor) -> int:
    """Return how many tokens to take at a time, a multiple of `GROUP`."""
    return GROUP * max(1, STEP // max(1, GROUP * math.prod(x.shape[:-2]) * x.shape[-1]))
