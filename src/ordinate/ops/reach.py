"""How far back a query has to look when its bias decays with the distance."""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.shapes import Keys, Queries, Table

# what is left out weighs at most this share of the distance between 1 and the next number: 2^-26 in float32
SHARE = 1 / 8
# tokens
STEP = 512


def first_keys(
    q: Queries, k: Keys, table: Table, where: Geometry, scale: float, size: int
) -> Int[Tensor, "b h blocks"] | None:
    """The first key that weighs anything to any query of a block; None: nothing can be left out.

    A score is at most |q| max|k| scale (Cauchy and Schwarz) plus the bias. All keys d or more places back weigh
    together at most exp(|q| max|k| scale + L[d]), with L[d] = log sum over e >= d of exp(bias[e]); the query's own
    key, which it sees, weighs exp(s + bias[0]). They can be left out once the first is below eps / 8 of the second: a
    quarter of what one rounding of the row changes (eps / 2, with eps = 2^-23 in float32).

    Args:
        q: queries.
        k: keys.
        table: the bias by distance, -inf where hidden; its type is the one that is computed in.
        where: the geometry.
        scale: multiplies q.k.
        size: queries of a block.
    """
    queries, keys = where.shape
    own = queries - 1 + where.start
    # the own key must exist and be visible
    if not where.hides_future or where.q_document is not None or where.start + queries != keys:
        return None
    share = math.log(SHARE * torch.finfo(table.dtype).eps)
    behind, near = table.logcumsumexp(1), table[:, own]
    if not bool((behind[:, 0] - near < share).any()):
        return None
    # products of float16 overflow
    q, k = (x.float() if x.dtype == torch.float16 else x for x in (q, k))
    groups, type = q.shape[1] // k.shape[1], table.dtype
    longest = torch.linalg.vector_norm(k, dim=-1).amax(-1)[:, :, None, None]
    grouped, mine = q.unflatten(1, (-1, groups)), k[:, :, None, where.start :]
    highest = (torch.linalg.vector_norm(grouped, dim=-1).to(type) * longest * abs(scale)).flatten(1, 2)
    # some tokens at a time: what they need stays in the processor's cache
    pairs = zip(grouped.split(STEP, 3), mine.split(STEP, 3), strict=True)
    own_score = torch.cat([(a * b).sum(-1) for a, b in pairs], -1).to(type).flatten(1, 2) * scale
    # room for the rounding of these sums, in the type of q
    room = max(1e-3, 4 * torch.finfo(q.dtype).eps) * highest
    least = own_score - highest - room + near[:, None] + share
    begins = torch.arange(0, queries, size, device=q.device)
    least = torch.nn.functional.pad(least, (0, -queries % size), value=math.inf).unflatten(2, (-1, size)).amin(-1)
    far = torch.searchsorted(behind, least.transpose(0, 1).flatten(1).contiguous())
    far = far.unflatten(1, (q.shape[0], -1)).transpose(0, 1)
    return (far + begins - queries + 1).clamp(0, keys - 1).contiguous()
