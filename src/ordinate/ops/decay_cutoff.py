"""Skip keys whose weight a decaying position bias (ALiBi) makes provably negligible."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Keys, OffsetTable, Queries
from ordinate.ops.score_bounds import ScoreBounds

# for each block of queries the first key of non-negligible weight, and the end of their range
KeyRanges = tuple[Int[Tensor, "b h blocks"], Int[Tensor, "b h blocks"]]
# skipped keys together weigh at most this share of the machine epsilon: 2^-26 in float32
SKIPPED_SHARE = 1 / 8
# with fewer keys, looking for those that could be left out takes as long as they do
MIN_KEYS = 768
# neighbouring keys whose norms are averaged, and the number of keys from which on this is worthwhile
SPREADS = (1, 16)
MANY_KEYS = 4096
# entries of a table that are skipped or kept together
FEW = 16
# of the largest score: more than norms and scores are rounded by
MARGIN = 1e-3


def relevant_keys(
    q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float, size: int, *, capped: bool = False
) -> KeyRanges | None:
    """Return the first key and the end of those with a non-negligible weight for some query of each block.

    A score is at most |q| |k| scale (Cauchy-Schwarz) plus the bias. All keys at distance d or more on one side
    together weigh at most exp(|q| K scale + L[d]), with L[d] = log sum over e >= d of exp(bias[e]) and K = max|k|;
    or, with a slightly larger L, a mean of near norms. All keys together weigh at least what `ScoreBounds` says.
    Distant keys can be skipped once their bound is below eps / 8 of it, or eps / 16 on each of two sides: a quarter
    of the rounding error of the row, eps / 2, with eps = 2^-23 in float32. A soft cap shrinks differences of scores
    from the largest possible one, so the bounds hold for capped scores, too, if K = max|k|.

    Args:
        q: queries.
        k: keys.
        table: bias by offset, -inf where masked; its dtype is the one of the computation.
        where: the geometry.
        scale: multiplies q.k.
        size: queries per block.
        capped: whether scores have a soft cap.

    Returns:
        Both for each block of each head of each sequence; None: no key can be skipped, or there are few.
    """
    queries, keys = where.shape
    own = queries - 1 + where.start
    # the bound compares with the query's own key, which must exist
    if where.start + queries != keys or keys < MIN_KEYS:
        return None
    share = math.log(SKIPPED_SHARE / (1 if where.is_causal else 2) * torch.finfo(table.dtype).eps)
    if not bool((_farthest(table, where) - table[:, own] < share).any()):
        return None
    bounds = ScoreBounds.of(q, k, table, where, scale)
    bounds = bounds._replace(least=_least_in_documents(bounds.least + share, where))
    # one side after the other: keys before and keys after the query
    sides = (table,) if where.is_causal else (table, table.flip(1))
    spreads = SPREADS[:1] if capped or keys < MANY_KEYS else SPREADS
    behind, *ahead = (
        torch.stack([_skipped(bounds, side, size, spread) for spread in spreads]).amax(0) for side in sides
    )
    begins = torch.arange(0, queries, size, device=q.device)
    ends = (begins + size).clamp(max=queries)
    first = (behind + begins - queries + 1).clamp(0, keys - 1)
    stop = len(table[0]) - ahead[0] + ends - queries if ahead else first.new_full(first.shape, keys)
    return first.contiguous(), stop.clamp(max=keys).maximum(first + 1).contiguous()


def _farthest(table: OffsetTable, where: Geometry) -> Float[Tensor, " h"]:
    """Return the bias of the farthest key that a window leaves, the lower of both sides."""
    queries, keys = where.shape
    own = queries - 1 + where.start
    reach = max(own, keys - 1) if where.window is None else where.window - 1
    farthest = table[:, max(own - reach, 0)]
    return farthest if where.is_causal else farthest.minimum(table[:, max(keys - 1 - where.start - reach, 0)])


def _skipped(bounds: ScoreBounds, table: OffsetTable, size: int, spread: int) -> Int[Tensor, "b h blocks"]:
    """Count the first entries of the table that are negligible for all queries of each block.

    A group of `spread` consecutive keys weighs no more than as many keys of norm K with the greatest bias of the
    group. Where only some keys of a group are skipped, these weigh no more than the whole group, whose other keys are
    at most `spread` - 1 and nearer: as many entries fewer are skipped.

    Args:
        bounds: `least` is the log of the weight from which on keys are not negligible.
        table: bias by offset, that of the farthest key first.
        size: queries per block.
        spread: keys of a group.
    """
    highest = bounds.reach * bounds.largest_norm(spread)
    least = (bounds.least - highest - MARGIN * highest).nan_to_num(-math.inf, math.inf, -math.inf)
    least = torch.nn.functional.pad(least, (0, -least.shape[2] % size), value=math.inf)
    least = least.unflatten(2, (-1, size)).amin(-1)
    greatest = table if spread == 1 else torch.nn.functional.max_pool1d(table, 2 * spread - 1, 1, spread - 1)
    # sums of a few entries first, since PyTorch's logcumsumexp is slow
    few = torch.nn.functional.pad(greatest, (0, -greatest.shape[1] % FEW), value=-math.inf)
    sums = few.unflatten(1, (-1, FEW)).logsumexp(2).logcumsumexp(1)
    return (FEW * _count_below(sums, least) - spread + 1).clamp(min=0)


def _least_in_documents(least: Float[Tensor, "b h i"], where: Geometry) -> Float[Tensor, "b h i"]:
    """Return the bounds with infinity at padding, which sees no key, and -infinity where only the own key is hidden.

    A query may see others while its own key is padding: in cross-attention, and by a key padding mask of PyTorch.
    """
    if where.q_document is None or where.k_document is None:
        return least
    hidden = where.q_document != where.k_document[:, where.start :]
    least = least.masked_fill(hidden[:, None], -math.inf)
    # the least of a block is that of its tokens
    return least.masked_fill((where.q_document == PADDING)[:, None], math.inf)


def _count_below(sums: Float[Tensor, "h offsets"], least: Float[Tensor, "b h blocks"]) -> Int[Tensor, "b h blocks"]:
    """Count the increasing sums of each head that are below each number."""
    found = torch.searchsorted(sums, least.transpose(0, 1).flatten(1).contiguous())
    return found.unflatten(1, (len(least), -1)).transpose(0, 1)
