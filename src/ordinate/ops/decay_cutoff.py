"""Skip keys whose weight a decaying position bias (ALiBi) makes provably negligible."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, OffsetTable, Queries

# skipped keys together weigh at most this share of the machine epsilon: 2^-26 in float32
SKIPPED_SHARE = 1 / 8
# numbers per step: temporaries of a step stay in the processor's cache
STEP = 2**17
# keys of a group whose weights together bound those of a row from below
GROUP = 64


def first_relevant_keys(
    q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float, size: int
) -> Int[Tensor, "b h blocks"] | None:
    """Return the first key with a non-negligible weight for some query of each block; None: no key can be skipped.

    A score is at most |q| max|k| scale (Cauchy-Schwarz) plus the bias. All keys at distance d or more together weigh
    at most exp(|q| max|k| scale + L[d]), with L[d] = log sum over e >= d of exp(bias[e]). The query's own key, which
    is visible, weighs exp(s + bias[0]), and the last whole group of m keys before it at least m exp(mean of their
    scores), since an exponential is convex. Distant keys can be skipped once their bound is below eps / 8 of one of
    these: a quarter of the rounding error of the row (eps / 2, with eps = 2^-23 in float32). A soft cap shrinks
    differences of scores, so the bounds hold for capped scores, too.

    Args:
        q: queries.
        k: keys.
        table: bias by offset, -inf where masked; its dtype is the one of the computation.
        where: the geometry.
        scale: multiplies q.k.
        size: queries per block.
    """
    queries, keys = where.shape
    own = queries - 1 + where.start
    # the bound compares with the query's own key, which must exist and be visible
    if not where.is_causal or where.q_document is not None or where.start + queries != keys:
        return None
    share = math.log(SKIPPED_SHARE * torch.finfo(table.dtype).eps)
    behind, near = table.logcumsumexp(1), table[:, own]
    if not bool((behind[:, 0] - near < share).any()):
        return None
    # squared norms of float16 overflow
    q, k = (x.float() if x.dtype == torch.float16 else x for x in (q, k))
    groups, type = q.shape[1] // k.shape[1], table.dtype
    longest = torch.linalg.vector_norm(k, dim=-1).amax(-1)[:, :, None, None]
    grouped, mine = q.unflatten(1, (-1, groups)), k[:, :, None, where.start :]
    highest = (torch.linalg.vector_norm(grouped, dim=-1).to(type) * longest * abs(scale)).flatten(1, 2)
    step = GROUP * max(1, STEP // max(1, GROUP * math.prod(q.shape[:2]) * q.shape[3]))
    own_score = own_scores(grouped, mine, scale, step).to(type).flatten(1, 2) + near[:, None]
    mean_score = group_scores(grouped, mine, scale, step).to(type).flatten(1, 2) + _group_bias(table, own, queries)
    # margin for the rounding of norms and scores, in the dtype of q
    room = max(1e-3, 4 * torch.finfo(q.dtype).eps) * highest
    least = own_score.maximum(mean_score) - highest - room + share
    begins = torch.arange(0, queries, size, device=q.device)
    least = torch.nn.functional.pad(least, (0, -queries % size), value=math.inf).unflatten(2, (-1, size)).amin(-1)
    far = torch.searchsorted(behind, least.transpose(0, 1).flatten(1).contiguous())
    far = far.unflatten(1, (q.shape[0], -1)).transpose(0, 1)
    return (far + begins - queries + 1).clamp(0, keys - 1).contiguous()


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
