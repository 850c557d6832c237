"""Symmetry of the query-key form W_q W_k^T of attention heads."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.heads import repeat_for_heads

# fewest and most random heads drawn, elements that limit their number, and heads drawn at once
MIN_DRAWS, MAX_DRAWS, MAX_ELEMENTS, DRAWS_PER_STEP = 2_000, 20_000, 1 << 27, 500

# projections of the heads of a layer
Matrices = Float[Tensor, "h width d"]


def symmetry(query: Matrices, key: Float[Tensor, "g width d"]) -> Float[Tensor, "h"]:
    """Symmetry score of M = W_q W_k^T for each head: 1 symmetric, -1 antisymmetric, about 0 neither.

        tr(M M) / |M|^2 = tr((W_k^T W_q)^2) / tr(W_q^T W_q W_k^T W_k)

    (1 + s) / 2 of the squared norm of M is symmetric, (1 - s) / 2 antisymmetric.

    Computed from matrices of head width squared; M is never formed. For random weights it is 1 / width +-
    sqrt(2) / width, independent of the head width.

    Args:
        query: W_q of each query head.
        key: W_k of each key head, which is shared by a group of consecutive query heads.
    Source: Saponati et al. 2025, https://arxiv.org/abs/2502.10927, whose score this is before a sum over all heads.
    Departs: with grouped-query attention, theirs pairs query heads with other key heads than the model does.
    """
    q, k = query.double(), repeat_for_heads(key.double(), len(query))
    return _beside(q, k)


def symmetry_by_offset(
    query: Matrices, key: Float[Tensor, "g width d"], turn: Float[Tensor, "#h offsets d d"]
) -> Float[Tensor, "h offsets"]:
    """Symmetry score at each offset under rotary embeddings: M = W_q R W_k^T with the relative rotation R.

    At offset 0 RoPE is the identity; every other offset has its own bilinear form.

    Args:
        query: W_q.
        key: W_k.
        turn: R with q_i . k_j = q R k at each offset; shared by all heads, or one per head.
    """
    q, k = query.double(), repeat_for_heads(key.double(), len(query))
    met, asked, held = k.mT @ q, q.mT @ q, k.mT @ k
    # W_q R replaces W_q: the products over the model width are computed once for all offsets
    found = [_share(met @ own, own.mT @ asked @ own, held) for own in turn.to(q).unbind(1)]
    return torch.stack(found, 1)


def exchange_similarity(
    query: Matrices, key: Float[Tensor, "g width d"], turn: Float[Tensor, "#h offsets d d"]
) -> Float[Tensor, "h offsets"]:
    """Similarity of scores before and after the exchange of W_q and W_k, at each offset under rotary embeddings.

        <W_q R W_k^T, W_k R W_q^T> / (|W_q R W_k^T| |W_k R W_q^T|)

    1 at every offset: queries and keys could be exchanged. Without rotation it is the symmetry score. Under RoPE,
    equal W_q and W_k have 1 at every offset, although W_q R W_k^T is symmetric at offset 0 alone.

    Args:
        query: W_q.
        key: W_k.
        turn: R with q_i . k_j = q R k at each offset; shared by all heads, or one per head.
    """
    q, k = query.double(), repeat_for_heads(key.double(), len(query))
    met, asked, held = k.mT @ q, q.mT @ q, k.mT @ k
    found = []
    for own in turn.to(q).unbind(1):
        inner = (own @ met @ own.mT * met.mT).sum((-2, -1))
        sizes = [(own.mT @ a @ own * b).sum((-2, -1)).clamp(min=0).sqrt() for a, b in ((asked, held), (held, asked))]
        found.append(inner / (sizes[0] * sizes[1]).clamp(min=1e-300))
    return torch.stack(found, 1)


def positive_share(query: Matrices, key: Float[Tensor, "g width d"]) -> Float[Tensor, "h"]:
    """Share of the symmetric part of M that is positive semidefinite, by squared eigenvalues, for each head.

        sum of l^2 over eigenvalues l > 0 of (M + M^T) / 2, divided by that over all

    A symmetric M = W_q W_k^T can be written with one matrix, W W^T, only if this is 1; W_q = -W_k has 0. About 1/2
    for random weights; 0 if there is no symmetric part.
    """
    q, k = query.double(), repeat_for_heads(key.double(), len(query))
    # (M + M^T) / 2 = [q k] J [q k]^T / 2, with J exchanging both: it has the eigenvalues of a small matrix
    upper, width = torch.linalg.qr(torch.cat([q, k], -1)).R, q.shape[-1]
    values = torch.linalg.eigvalsh(upper @ upper.roll(width, -1).mT)
    whole, positive = values.square().sum(-1), values.clamp(min=0).square().sum(-1)
    return torch.where(whole > 0, positive / whole.clamp(min=1e-300), 0.0)


def summed_symmetry(query: Matrices, key: Float[Tensor, "g width d"]) -> float:
    """Symmetry score of the sum of M over all heads of a layer, as published."""
    q, k = (x.transpose(0, 1).flatten(1)[None] for x in (query.double(), repeat_for_heads(key.double(), len(query))))
    return float(_beside(q, k)[0])


def effective_ranks(query: Matrices, key: Float[Tensor, "g width d"], energy: float) -> list[int]:
    """Effective rank of M for each head: number of singular values that explain this share of their squared sum."""
    squares = _sizes(query, key).square()
    share = squares.cumsum(-1) / squares.sum(-1, keepdim=True).clamp(min=1e-300)
    return [int(found) for found in (share < energy).sum(-1) + 1]


def null_symmetry(query: Matrices, key: Float[Tensor, "g width d"], seed: int) -> Float[Tensor, "draws h"]:
    """Null distribution of the symmetry score of each head: its singular values with independent random directions.

        M = U S V^T,    s = sum over a, b of S_a S_b X_ab X_ba / sum over a of S_a^2,    X = V^T U

    The singular values are the head's own, since heads with few large ones scatter more under the null. U and V are
    uniform random orthonormal frames; the entries of X are approximated as normal with variance 1 / width.

    Args:
        query: W_q.
        key: W_k.
        seed: of the draws.
    """
    sizes, width = _sizes(query, key), query.shape[1]
    unit = torch.nn.functional.normalize(sizes, dim=1).float().cpu()
    count, generator = unit.shape[1], torch.Generator().manual_seed(seed)
    found = []
    for _ in range(0, min(MAX_DRAWS, max(MIN_DRAWS, MAX_ELEMENTS // count**2)), DRAWS_PER_STEP):
        x = torch.randn(DRAWS_PER_STEP, count, count, generator=generator)
        found.append(((unit @ (x * x.mT)) * unit).sum(-1) / width)
    return torch.cat(found).double()


def _sizes(query: Matrices, key: Float[Tensor, "g width d"]) -> Float[Tensor, "h d"]:
    """Singular values of M, from the small triangular factors of both projections."""
    q, k = query.double(), repeat_for_heads(key.double(), len(query))
    return torch.linalg.svdvals(torch.linalg.qr(q).R @ torch.linalg.qr(k).R.mT)


def _beside(q: Matrices, k: Matrices) -> Float[Tensor, "h"]:
    return _share(k.mT @ q, q.mT @ q, k.mT @ k)


def _share(
    met: Float[Tensor, "h d d"], asked: Float[Tensor, "h d d"], held: Float[Tensor, "h d d"]
) -> Float[Tensor, "h"]:
    """Symmetry score from W_k^T W_q, W_q^T W_q and W_k^T W_k."""
    own, whole = (met * met.mT).sum((-2, -1)), (asked * held).sum((-2, -1))
    return torch.where(whole > 0, own / whole.clamp(min=1e-300), 0.0)
