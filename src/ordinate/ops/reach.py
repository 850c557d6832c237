"""How far back a query has to look when its bias decays with the distance."""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.ops.tiles import Table
from ordinate.shapes import Keys, Queries

# what is left out weighs at most 2^-BITS of a row
BITS = 26


def first_keys(
    q: Queries, k: Keys, table: Table, where: Geometry, scale: float, size: int
) -> Int[Tensor, "b h blocks"] | None:
    """The first key that weighs anything to any query of a block; None: nothing can be left out.

    A score is at most |q| max|k| scale (Cauchy and Schwarz) plus the bias, and bias[d] at a distance of d places or
    more is at most M[d] = max over e >= d of bias[e]. The query's own key, which it sees, scores s + bias[0]. A key
    d places back thus weighs at most exp(|q| max|k| scale + M[d] - s - bias[0]) of that one, and can be left out
    once this is below 2^-26 / keys: all that is left out together weighs at most 2^-26 of the row, which rounding to
    float32 (2^-24) hides.

    Args:
        q: queries.
        k: keys.
        table: the bias by distance, -inf where hidden.
        where: the geometry.
        scale: multiplies q.k.
        size: queries of a block.
    """
    queries, keys = where.shape
    own = queries - 1 + where.start
    # the own key must exist and be visible
    if not where.hides_future or where.q_document is not None or where.start + queries != keys:
        return None
    slack = BITS * math.log(2) + math.log(keys)
    at_most = table.cummax(1).values
    near = table[:, own]
    if not bool((near - at_most[:, 0] > slack).any()):
        return None
    groups = q.shape[1] // k.shape[1]
    longest = torch.linalg.vector_norm(k, dim=-1, dtype=table.dtype).amax(-1).repeat_interleave(groups, 1)
    mine = k[:, :, where.start :].repeat_interleave(groups, 1)
    own_score = (q * mine).sum(-1, dtype=table.dtype) * scale
    highest = torch.linalg.vector_norm(q, dim=-1, dtype=table.dtype) * longest[..., None] * abs(scale)
    # one part in a thousand for rounding in these sums
    least = own_score - highest - 1e-3 * highest + near[:, None] - slack
    begins = torch.arange(0, queries, size, device=q.device)
    least = torch.nn.functional.pad(least, (0, -queries % size), value=math.inf).unflatten(2, (-1, size)).amin(-1)
    far = torch.searchsorted(at_most, least.transpose(0, 1).flatten(1).contiguous())
    far = far.unflatten(1, (q.shape[0], -1)).transpose(0, 1)
    return (far + begins - queries + 1).clamp(0, keys - 1).contiguous()
