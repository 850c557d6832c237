"""Low-rank approximation of the query-key form of attention heads."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.heads import repeat_for_heads


def low_rank_projection(
    query: Float[Tensor, "h width d"],
    key: Float[Tensor, "g width d"],
    turn: Float[Tensor, "#h offsets d d"],
    rank: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "h d d"]:
    """Return the matrix A by which to multiply queries so that W_q A R W_k^T is a rank-r approximation.

        [W_q R W_k^T for each R] = U S V^T,    q -> q A,    W_q A R W_k^T = U_r U_r^T W_q R W_k^T

    Without rotations this is the best approximation of W_q W_k^T of that rank (Eckart and Young). With rotary
    embeddings it is the best that one subspace of the queries achieves for all offsets together.

    Args:
        query: W_q of each query head.
        key: W_k of each key head, which is shared by a group of consecutive query heads.
        turn: relative rotation R with q_i . k_j = q R k at each offset, shared by all heads or one per head; the
            identity alone where there are no rotations.
        rank: number of singular directions that are kept.
        generator: keeps random directions instead; None: those of the largest singular values.
    """
    # QR reduces the model width to the head width: only the triangular factors matter for singular values
    q, k = (torch.linalg.qr(x.double()).R for x in (query, repeat_for_heads(key, len(query))))
    if generator is None:
        # the matrices of all offsets side by side have the left singular vectors of their small triangular factor
        turned = torch.cat([k @ own.mT for own in turn.to(q).unbind(1)], 1)
        kept = torch.linalg.svd(q @ torch.linalg.qr(turned).R.mT).U[..., :rank]
    else:
        drawn = torch.randn(len(q), q.shape[1], rank, generator=generator, dtype=torch.float64).to(q)
        kept = torch.linalg.qr(drawn).Q
    return torch.linalg.pinv(q) @ kept @ (kept.mT @ q)
