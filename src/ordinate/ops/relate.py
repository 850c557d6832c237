"""Scores of queries that turn themselves and all keys at rates of their own."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.rotate import Layout, split
from ordinate.shapes import Bias, Keys, Queries

# numbers that one step of `related` holds of each kind
STEP = 2**22


def related(
    q: Queries,
    k: Keys,
    offset: Float[Tensor, "#b i j"],
    rates: Float[Tensor, "#b i pairs"],
    layout: Layout,
    magnitude: float = 1.0,
) -> Bias:
    """q.k where each query i turns itself and every key at rates of its own.

        sum_m  (q1 k1 + q2 k2) cos(offset w_m) + (q1 k2 - q2 k1) sin(offset w_m)  +  what does not turn

    In blocks of queries, so that nothing of size queries x keys x pairs is held whole in the forward pass.

    Args:
        q: queries.
        k: keys, with as many heads.
        offset: query position minus key position [tokens], in float64.
        rates: how fast each pair turns, for each query [radians a token], in float64.
        layout: which channels pair up.
        magnitude: multiplies what turns, queries and keys alike.
    """
    pairs = rates.shape[-1]
    (q, still_q), (k, still_k) = (x.tensor_split((2 * pairs,), -1) for x in (q, k))
    k1, k2 = (x[:, :, None] for x in split(k, layout))
    size = max(1, STEP // max(1, q.shape[0] * q.shape[1] * k.shape[2] * pairs))
    parts = []
    for step in range(0, max(q.shape[2], 1), size):
        block = slice(step, step + size)
        angles = offset[:, block, :, None] * rates[:, block, None]
        cos, sin = (wave.to(q.dtype)[:, None] for wave in (angles.cos(), angles.sin()))
        q1, q2 = (x[:, :, :, None] for x in split(q[:, :, block], layout))
        parts.append(((q1 * k1 + q2 * k2) * cos + (q1 * k2 - q2 * k1) * sin).sum(-1))
    scores = magnitude**2 * torch.cat(parts, 2)
    return scores + still_q @ still_k.mT if still_q.shape[-1] else scores
