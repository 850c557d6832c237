"""Scores with rotary frequencies that depend on the query, so that keys cannot be rotated once for all queries."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Bias, Keys, Queries
from ordinate.core.tensors import on_device
from ordinate.ops.rotate import Layout, split_pairs

# elements of each intermediate tensor in one step
STEP = 2**22
# most queries of one step; `explain` extends the memory of 8 and of 16 queries to all, so a step has no more than 8
QUERIES = 8


def per_query_rotary_scores(
    q: Queries,
    k: Keys,
    offset: Float[Tensor, "#b i j"],
    rates: Float[Tensor, "#b i pairs"],
    layout: Layout,
    magnitude: float = 1.0,
) -> Bias:
    """Scores q.k under RoPE with frequencies that depend on the query.

        sum_m  (q1 k1 + q2 k2) cos(offset w_m) + (q1 k2 - q2 k1) sin(offset w_m)  +  q.k of unrotated channels

    Computed in blocks of queries, so that the forward pass never stores a tensor of queries x keys x pairs.

    Args:
        q: queries.
        k: keys, with as many heads.
        offset: query position minus key position [tokens], in float64.
        rates: frequency w of each pair, for each query [radians a token], in float64.
        layout: which channels pair up.
        magnitude: factor on the rotated channels of both queries and keys.
    """
    pairs = rates.shape[-1]
    (q, still_q), (k, still_k) = (x.tensor_split((2 * pairs,), -1) for x in (q, k))
    k1, k2 = (x[:, :, None] for x in split_pairs(k, layout))
    size = min(QUERIES, max(1, STEP // max(1, q.shape[0] * q.shape[1] * k.shape[2] * pairs)))
    parts = []
    for queries, offsets, frequencies in zip(
        q.split(size, 2), offset.split(size, 1), rates.split(size, 1), strict=True
    ):
        angles = offsets[..., None] * frequencies[:, :, None]
        cos, sin = (on_device(wave, q.dtype, q.device)[:, None] for wave in (angles.cos(), angles.sin()))
        q1, q2 = (x[:, :, :, None] for x in split_pairs(queries, layout))
        parts.append(((q1 * k1 + q2 * k2) * cos + (q1 * k2 - q2 * k1) * sin).sum(-1))
    scores = magnitude**2 * torch.cat(parts, 2)
    return scores + still_q @ still_k.mT if still_q.shape[-1] else scores
