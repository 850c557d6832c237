"""Skip keys whose weight a decaying position bias (ALiBi) makes provably negligible."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Keys, OffsetTable, Queries

# for each block of queries the first key of non-negligible weight, and the end of their range
KeyRanges = tuple[Int[Tensor, "b h blocks"], Int[Tensor, "b h blocks"]]
# skipped keys together weigh at most this share of the machine epsilon: 2^-26 in float32
SKIPPED_SHARE = 1 / 8
# numbers per step: temporaries of a step stay in the processor's cache
STEP = 2**17
# keys of a group whose weights together bound those of a row from below
GROUP = 64


def relevant_keys(
    q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float, size: int
) -> KeyRanges | None:
    """Return the first key and the end of those with a non-negligible weight for some query of each block.

    A score is at most |q| max|k| scale (Cauchy-Schwarz) plus the bias. All keys at distance d or more on one side
    together weigh at most exp(|q| max|k| scale + L[d]), with L[d] = log sum over e >= d of exp(bias[e]). The query's
    own key, which is visible, weighs exp(s + bias[0]), and the last whole group of m keys before it at least
    m exp(mean of their scores), since an exponential is convex; in packed texts, where a group may belong to another
    text, only the own key counts. Distant keys can be skipped once their bound is below eps / 8 of one of these, or
    eps / 16 on each of two sides: a quarter of the rounding error of the row, eps / 2, with eps = 2^-23 in float32. A
    soft cap shrinks differences of scores, so the bounds hold for capped scores, too.

    Args:
        q: queries.
        k: keys.
        table: bias by offset, -inf where masked; its dtype is the one of the computation.
        where: the geometry.
        scale: multiplies q.k.
        size: queries per block.

    Returns:
        Both for each block of each head of each sequence; None: no key can be skipped.
    """
    queries, keys = where.shape
    own = queries - 1 + where.start
    # the bound compares with the query's own key, which must exist
    if where.start + queries != keys:
        return None
    share = math.log(SKIPPED_SHARE / (1 if where.is_causal else 2) * torch.finfo(table.dtype).eps)
    behind, ahead, near = table.logcumsumexp(1), table.flip(1).logcumsumexp(1), table[:, own]
    # the farthest that a window leaves
    reach = max(own, keys - 1) if where.window is None else where.window - 1
    farthest = behind[:, max(own - reach, 0)]
    if not where.is_causal:
        farthest = farthest.minimum(ahead[:, max(keys - 1 - where.start - reach, 0)])
    if not bool((farthest - near < share).any()):
        return None
    least = _least_sums(q, k, table, where, scale) + share
    least = _least_in_documents(least, where)
    least = torch.nn.functional.pad(least, (0, -queries % size), value=math.inf).unflatten(2, (-1, size)).amin(-1)
    begins = torch.arange(0, queries, size, device=q.device)
    ends = (begins + size).clamp(max=queries)
    first = (_count_below(behind, least) + begins - queries + 1).clamp(0, keys - 1)
    stop = (len(table[0]) - _count_below(ahead, least) + ends - queries).clamp(max=keys)
    return first.contiguous(), stop.maximum(first + 1).contiguous()


def _least_sums(q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float) -> Float[Tensor, "b h i"]:
    """Return the log of a lower bound of each query's sum of weights, less its greatest score without a bias."""
    # squared norms of float16 overflow
    q, k = (x.float() if x.dtype == torch.float16 else x for x in (q, k))
    groups, type, own = q.shape[1] // k.shape[1], table.dtype, where.shape[0] - 1 + where.start
    longest = torch.linalg.vector_norm(k, dim=-1).amax(-1)[:, :, None, None]
    grouped, mine = q.unflatten(1, (-1, groups)), k[:, :, None, where.start :]
    highest = (torch.linalg.vector_norm(grouped, dim=-1).to(type) * longest * abs(scale)).flatten(1, 2)
    step = GROUP * max(1, STEP // max(1, GROUP * math.prod(q.shape[:2]) * q.shape[3]))
    sums = own_scores(grouped, mine, scale, step).to(type).flatten(1, 2) + table[:, own, None]
    if where.q_document is None:
        mean_score = group_scores(grouped, mine, scale, step).to(type).flatten(1, 2)
        sums = sums.maximum(mean_score + _group_bias(table, own, where.shape[0]))
    # margin for the rounding of norms and scores, in the dtype of q
    return sums - highest - max(1e-3, 4 * torch.finfo(q.dtype).eps) * highest


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


def own_scores(
    q: Float[Tensor, "b g r i d"], k: Float[Tensor, "b g 1 i d"], scale: float, step: int
) -> Float[Tensor, "b g r i"]:
    """Return the scaled product of each query with its own key in float32, a step at a time."""
    pairs = zip(q.split(step, 3), k.split(step, 3), strict=True)
    return torch.cat([(a * b).float().sum(-1) * scale for a, b in pairs], -1)


def group_scores(
    q: Float[Tensor, "b g r i d"], k: Float[Tensor, "b g 1 i d"], scale: float, step: int
) -> Float[Tensor, "b g r i"]:
    """Return the mean score of each query with the last whole group of keys up to its own; -inf if there is none.

    The group of query i ends (i + 1) mod `GROUP` keys before it.

    Args:
        q: queries.
        k: the keys of these queries, in groups of `GROUP` from the first on.
        scale: multiplies products.
        step: queries at a time, a multiple of `GROUP`.
    """
    lone, groups = min(GROUP - 1, q.shape[3]), q.shape[3] // GROUP
    found = [q.new_full((*q.shape[:3], lone), -math.inf, dtype=torch.float32)]
    if groups:
        whole = k[..., : groups * GROUP, :]
        # the queries from the last of a group on see it
        for asked, held in zip(q[..., lone:, :].split(step, 3), whole.split(step, 3), strict=True):
            means = held.float().unflatten(3, (-1, GROUP)).mean(4)
            products = asked.float() * means.repeat_interleave(GROUP, 3)[..., : asked.shape[3], :]
            found.append(products.sum(-1) * scale)
    return torch.cat(found, -1)


def _group_bias(table: OffsetTable, own: int, queries: int) -> Float[Tensor, "h i"]:
    """Return for each query the log of the size of its group (see `group_scores`) plus the mean bias of its keys."""
    if own < 2 * GROUP - 2:
        return table.new_full((len(table), queries), -math.inf)
    means = table[:, own - 2 * GROUP + 2 : own + 1].unfold(1, GROUP, 1).mean(-1).flip(1)
    behind = torch.arange(1, queries + 1, device=table.device) % GROUP
    return math.log(GROUP) + means[:, behind]
