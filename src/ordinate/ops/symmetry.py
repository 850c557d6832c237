"""Whether the form by which queries meet keys is symmetric: what q meets k gives beside what k would meet q give."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.heads import for_heads

# heads that are drawn, numbers that they may have, and heads drawn at once
FEWEST, MOST, NUMBERS, AT_ONCE = 2_000, 20_000, 1 << 27, 500

# heads of a layer side by side
Matrices = Float[Tensor, "h width d"]


def symmetry(query: Matrices, key: Float[Tensor, "g width d"]) -> Float[Tensor, "h"]:
    """How symmetric M = W_q W_k^T of each head is: 1 symmetric, -1 antisymmetric, about 0 neither.

        tr(M M) / |M|^2 = tr((W_k^T W_q)^2) / tr(W_q^T W_q W_k^T W_k)

    Computed in head width squared; M itself is never made. Of random weights it is 1 / width, give or take
    sqrt(2) / width, whatever the width of the head.

    Args:
        query: W_q of each query head.
        key: W_k of each key head; each serves a group of query heads that stand together.
    Source: Saponati et al. 2025, https://arxiv.org/abs/2502.10927, whose score this is before a sum over all heads.
    Departs: theirs pairs query heads with other key heads than the model does, where these are fewer.
    """
    q, k = query.double(), for_heads(key.double(), len(query))
    return _beside(q, k)


def symmetry_by_offset(
    query: Matrices, key: Float[Tensor, "g width d"], turn: Float[Tensor, "#h offsets d d"]
) -> Float[Tensor, "h offsets"]:
    """The same where queries and keys are turned by their positions: M = W_q R W_k^T, R the turn at an offset.

    At offset 0 rope is nothing; what a head makes of pairs that are apart is another form at each offset.

    Args:
        query: W_q.
        key: W_k.
        turn: R, by which q_i . k_j is q R k at each offset; one for all heads, or one for each.
    """
    q, k = query.double(), for_heads(key.double(), len(query))
    met, asked, held = k.mT @ q, q.mT @ q, k.mT @ k
    # W_q R takes the place of W_q in both: nothing as long as the width is computed again
    found = [_share(met @ own, own.mT @ asked @ own, held) for own in turn.to(q).unbind(1)]
    return torch.stack(found, 1)


def summed_symmetry(query: Matrices, key: Float[Tensor, "g width d"]) -> float:
    """The same of the sum of M over all heads of a layer, as it was published."""
    q, k = (x.transpose(0, 1).flatten(1)[None] for x in (query.double(), for_heads(key.double(), len(query))))
    return float(_beside(q, k)[0])


def ranks(query: Matrices, key: Float[Tensor, "g width d"], energy: float) -> list[int]:
    """How many singular values of M hold so much of its squares, for each head."""
    squares = _sizes(query, key).square()
    share = squares.cumsum(-1) / squares.sum(-1, keepdim=True).clamp(min=1e-300)
    return [int(found) for found in (share < energy).sum(-1) + 1]


def by_chance(query: Matrices, key: Float[Tensor, "g width d"], seed: int) -> Float[Tensor, "draws h"]:
    """The symmetry that each head would have if its queries and keys had nothing to do with each other.

        M = U S V^T,    s = sum over a, b of S_a S_b X_ab X_ba / sum over a of S_a^2,    X = V^T U

    S is the head's own: where few directions count, chance makes heads that are far from its mean more often. U and V
    are drawn evenly from all frames; each number of X is then normal with variance 1 / width.

    Args:
        query: W_q.
        key: W_k.
        seed: of the draws.
    """
    sizes, width = _sizes(query, key), query.shape[1]
    unit = torch.nn.functional.normalize(sizes, dim=1).float().cpu()
    count, generator = unit.shape[1], torch.Generator().manual_seed(seed)
    found = []
    for _ in range(0, min(MOST, max(FEWEST, NUMBERS // count**2)), AT_ONCE):
        x = torch.randn(AT_ONCE, count, count, generator=generator)
        found.append(((unit @ (x * x.mT)) * unit).sum(-1) / width)
    return torch.cat(found).double()


def _sizes(query: Matrices, key: Float[Tensor, "g width d"]) -> Float[Tensor, "h d"]:
    """The singular values of M."""
    q, k = query.double(), for_heads(key.double(), len(query))
    return torch.linalg.svdvals(torch.linalg.qr(q).R @ torch.linalg.qr(k).R.mT)


def _beside(q: Matrices, k: Matrices) -> Float[Tensor, "h"]:
    return _share(k.mT @ q, q.mT @ q, k.mT @ k)


def _share(
    met: Float[Tensor, "h d d"], asked: Float[Tensor, "h d d"], held: Float[Tensor, "h d d"]
) -> Float[Tensor, "h"]:
    """Of W_k^T W_q, W_q^T W_q and W_k^T W_k."""
    own, whole = (met * met.mT).sum((-2, -1)), (asked * held).sum((-2, -1))
    return torch.where(whole > 0, own / whole.clamp(min=1e-300), 0.0)
