"""Queries and keys that meet in fewer directions than their heads have."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.heads import for_heads


def narrowing(
    query: Float[Tensor, "h width d"],
    key: Float[Tensor, "g width d"],
    turn: Float[Tensor, "#h offsets d d"],
    rank: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "h d d"]:
    """What queries are multiplied by so that W_q R W_k^T keeps so many singular values, and the largest.

        [W_q R W_k^T for each R] = U S V^T,    q -> q A,    W_q A R W_k^T = U_r U_r^T W_q R W_k^T

    Where nothing is turned this is the best approximation of W_q W_k^T of that rank (Eckart and Young). Where queries
    and keys are turned by their places, it is the best that one subspace of the queries does for all turns together.

    Args:
        query: W_q of each query head.
        key: W_k of each key head; each serves a group of query heads that stand together.
        turn: R, by which q_i . k_j is q R k at each offset, one for all heads or one for each; the identity alone
            where nothing is turned.
        rank: how many directions are kept.
        generator: draws them at random instead; None: those of the largest singular values.
    """
    # the columns of W_q span as many directions as its triangle has rows: the rest of the width plays no part
    q, k = (torch.linalg.qr(x.double()).R for x in (query, for_heads(key, len(query))))
    if generator is None:
        # of many turns side by side a triangle tells as much
        turned = torch.cat([k @ own.mT for own in turn.to(q).unbind(1)], 1)
        kept = torch.linalg.svd(q @ torch.linalg.qr(turned).R.mT).U[..., :rank]
    else:
        drawn = torch.randn(len(q), q.shape[1], rank, generator=generator, dtype=torch.float64).to(q)
        kept = torch.linalg.qr(drawn).Q
    return torch.linalg.pinv(q) @ kept @ (kept.mT @ q)
