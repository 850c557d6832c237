"""Skip keys whose weight a decaying position bias (ALiBi) makes provably negligible."""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Keys, OffsetTable, Queries

# skipped keys together weigh at most this share of the machine epsilon: 2^-26 in float32
SKIPPED_SHARE = 1 / 8
# tokens per step: temporaries of a step stay in the processor's cache
STEP = 512


def first_relevant_keys(
    q: Queries, k: Keys, table: OffsetTable, where: Geometry, scale: float, size: int
) -> Int[Tensor, "b h blocks"] | None:
    """Return the first key with a non-negligible weight for some query of each block; None: no key can be skipped.

    A score is at most |q| max|k| scale (Cauchy-Schwarz) plus the bias. All keys at distance d or more together weigh
    at most exp(|q| max|k| scale + L[d]), with L[d] = log sum over e >= d of exp(bias[e]); the query's own key, which
    is visible, weighs exp(s + bias[0]). They can be skipped once the first is below eps / 8 of the second: a quarter
    of the rounding error of the row (eps / 2, with eps = 2^-23 in float32).

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
    pairs = zip(grouped.split(STEP, 3), mine.split(STEP, 3), strict=True)
    own_score = torch.cat([(a * b).sum(-1) for a, b in pairs], -1).to(type).flatten(1, 2) * scale
    # margin for the rounding of norms and scores, in the dtype of q
    room = max(1e-3, 4 * torch.finfo(q.dtype).eps) * highest
    least = own_score - highest - room + near[:, None] + share
    begins = torch.arange(0, queries, size, device=q.device)
    least = torch.nn.functional.pad(least, (0, -queries % size), value=math.inf).unflatten(2, (-1, size)).amin(-1)
    far = torch.searchsorted(behind, least.transpose(0, 1).flatten(1).contiguous())
    far = far.unflatten(1, (q.shape[0], -1)).transpose(0, 1)
    return (far + begins - queries + 1).clamp(0, keys - 1).contiguous()
