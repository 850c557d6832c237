"""Locality-sensitive hashing (LSH) attention of Reformer: softmax over tokens that share a hash bucket."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.core.shapes import Keys, Outputs, Queries, Values

# scores of a token with itself and of masked pairs: a token attends to itself only where it has no other key, and
# exp of masked scores is exactly 0 beside either
SELF_SCORE, MASKED_SCORE = -1e5, -1e9
Buckets = Int[Tensor, "b h rounds n"]
Sums = Float[Tensor, "b h i 1"]


@torch.no_grad()
def hash_buckets(
    x: Queries, directions: Int[Tensor, "h d rounds columns"], factors: Sequence[int]
) -> Int[Tensor, "b h rounds i"]:
    """Hash each vector in each round by angular LSH: argmax over random directions and their negatives.

    Args:
        x: the vectors; their norms do not matter.
        directions: random projections, factor / 2 columns for each factor.
        factors: factors of the number of buckets, each with its own columns.
    """
    along = torch.einsum("bhid, hdrc -> bhric", x, directions.to(x.dtype))
    found, count = along.new_zeros(along.shape[:-1], dtype=torch.long), 1
    for part, factor in zip(along.split([factor // 2 for factor in factors], -1), factors, strict=True):
        if factor > 1:
            found = found + count * torch.cat([part, -part], -1).argmax(-1)
        count *= factor
    return found


@dataclass(frozen=True, eq=False)
class CandidatePairs:
    """Candidate pairs of LSH attention: in each round tokens are sorted by bucket, and by position within a bucket.

        strict:  pairs at most `reach` sorted places apart within one bucket
        chunks:  chunks of `reach` sorted places; a query sees its own and the previous chunk, cyclically

    Args:
        order: token at each sorted place.
        sorted_place: sorted place of each token, with gaps between buckets (strict), or its chunk.
        filled_chunks: number of chunks that contain tokens; None: strict.
        real: False at padding, which is masked for all queries.
        reach: largest distance between sorted places, and chunk length [tokens].
        is_causal: whether attention is causal.
    """

    order: Buckets
    sorted_place: Buckets
    filled_chunks: Int[Tensor, "b"] | None
    real: Bool[Tensor, "b 1 n"]
    reach: int
    is_causal: bool

    @classmethod
    def of(cls, buckets: Buckets, padding: int, reach: int, strict: bool, hides_future: bool) -> "CandidatePairs":
        """Sort tokens by bucket; `padding` is the extra bucket, after all others, that holds padding."""
        order = buckets.argsort(dim=-1, stable=True)
        place = _inverse(order).int()
        real = buckets[:, :1, 0] != padding
        if strict:
            return cls(order, place + (reach + 1) * buckets.int(), None, real, reach, hides_future)
        filled = (real.sum((1, 2)) + reach - 1).div(reach, rounding_mode="floor").clamp(min=1)
        return cls(order, place // reach, filled.int(), real, reach, hides_future)

    @property
    def rounds(self) -> int:
        """Number of hash rounds."""
        return self.order.shape[2]

    def are_candidates(
        self, turn: int, i: Int[Tensor, "b h *c i"], j: Int[Tensor, "b h *c j"]
    ) -> Bool[Tensor, "b h *c i j"]:
        """Whether queries i and keys j are candidates in this round."""
        spots = (self.sorted_place[:, :, turn].gather(2, index.flatten(2)).view_as(index) for index in (i, j))
        apart = next(spots)[..., None] - next(spots)[..., None, :]
        if self.filled_chunks is None:
            return apart.abs() <= self.reach
        return apart.remainder(self.filled_chunks.view(-1, *(1,) * (apart.ndim - 1))) <= 1

    def is_visible(self, i: Int[Tensor, "b h *c i"], j: Int[Tensor, "b h *c j"]) -> Bool[Tensor, "b h *c #i j"]:
        """Whether the mask (padding and causality) allows query i to attend to key j, independent of the hash."""
        real = self.real.expand(-1, j.shape[1], -1).gather(2, j.flatten(2)).view_as(j)[..., None, :]
        return real & (j[..., None, :] <= i[..., None]) if self.is_causal else real

    def chunks(self, turn: int) -> tuple[Int[Tensor, "b h c i"], Int[Tensor, "b h c j"], Bool[Tensor, "#b 1 c 1 j"]]:
        """Queries of each chunk of a round, a superset of their candidate keys, and which of these keys count."""
        i = self.order[:, :, turn].unflatten(2, (-1, self.reach))
        own = torch.arange(i.shape[2], device=i.device)[None]
        if self.filled_chunks is None:
            sides = (-1, 0) if self.is_causal else (-1, 0, 1)
            near = torch.stack([own + side for side in sides], -1)
            counts = (near >= 0) & (near < i.shape[2])
        else:
            near = torch.stack(
                [(own - 1).remainder(self.filled_chunks[:, None]), own.expand(len(self.filled_chunks), -1)], -1
            )
            counts = torch.stack([near[..., 0] != own, torch.ones_like(near[..., 1], dtype=torch.bool)], -1)
        index = near.clamp(0, i.shape[2] - 1).flatten(1)[:, None, :, None].expand(*i.shape[:2], -1, self.reach)
        j = i.gather(2, index).unflatten(2, (-1, near.shape[2])).flatten(3)
        return i, j, counts.repeat_interleave(self.reach, -1)[:, None, :, None]


def dense_lsh_attention(q: Queries, k: Keys, v: Values, mates: CandidatePairs) -> Outputs:
    """LSH attention by dense masked scores, for the last queries: softmax over the candidates of any round.

    Args:
        q: queries of the last tokens.
        k: keys of all tokens.
        v: their values.
        mates: the candidate pairs.
    """
    tokens = torch.arange(k.shape[2], device=k.device).expand(*k.shape[:2], -1)
    i = tokens[..., k.shape[2] - q.shape[2] :]
    seen = mates.are_candidates(0, i, tokens)
    for turn in range(1, mates.rounds):
        seen = seen | mates.are_candidates(turn, i, tokens)
    return _scores(q, k, i, tokens, seen & mates.is_visible(i, tokens)).softmax(-1) @ v


def chunked_lsh_attention(q: Queries, k: Keys, v: Values, mates: CandidatePairs) -> Outputs:
    """The same for all tokens, with scores of candidate pairs only; the chunk length must divide the tokens.

    A pair counts in the first round that contains it. The rounds thus partition the union of all pairs, and their
    sums are combined as one softmax: o = sum_r sum_j exp(s_ij) v_j / sum_r sum_j exp(s_ij).
    """
    found = [_round(turn, q, k, v, mates) for turn in range(mates.rounds)]
    highest = reduce(torch.maximum, (top for _, _, top in found))
    shares = [(top - highest).exp() for _, _, top in found] if len(found) > 1 else [1.0]
    whole = reduce(torch.add, (total * share for share, (_, total, _) in zip(shares, found, strict=True)))
    return reduce(torch.add, (o * (share / whole) for share, (o, _, _) in zip(shares, found, strict=True)))


def _round(turn: int, q: Queries, k: Keys, v: Values, mates: CandidatePairs) -> tuple[Outputs, Sums, Sums]:
    """Partial softmax of one round: sum of exp(score - top) v, sum of exp(score - top), and top, for each query."""
    i, j, counts = mates.chunks(turn)
    seen = mates.are_candidates(turn, i, j) & mates.is_visible(i, j) & counts
    for before in range(turn):
        seen = seen & ~mates.are_candidates(before, i, j)
    scores = _scores(_rows(q, i), _rows(k, j), i, j, seen)
    # shifting all scores does not change the result: its gradient cancels
    top = scores.detach().amax(-1, keepdim=True)
    weights = (scores - top).exp()
    place = _inverse(mates.order[:, :, turn])
    parts = weights @ _rows(v, j), weights.sum(-1, keepdim=True), top
    o, total, top = (_rows(part.flatten(2, 3), place) for part in parts)
    return o, total, top


def _scores(
    q: Float[Tensor, "b h *c i d"],
    k: Float[Tensor, "b h *c j d"],
    i: Int[Tensor, "b h *c i"],
    j: Int[Tensor, "b h *c j"],
    seen: Bool[Tensor, "b h *c i j"],
) -> Float[Tensor, "b h *c i j"]:
    scores = (q @ k.mT).masked_fill_(i[..., None] == j[..., None, :], SELF_SCORE)
    return scores.masked_fill_(~seen, MASKED_SCORE)


def _inverse(order: Int[Tensor, "*any n"]) -> Int[Tensor, "*any n"]:
    places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter(-1, order, places)


def _rows(x: Float[Tensor, "b h n e"], index: Int[Tensor, "b h *c"]) -> Float[Tensor, "b h *c e"]:
    batch, heads, tokens, width = x.shape
    first = tokens * torch.arange(batch * heads, device=x.device).view(batch, heads, *(1,) * (index.ndim - 2))
    return x.reshape(-1, width).index_select(0, (first + index).flatten()).view(*index.shape, width)
