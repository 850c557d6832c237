"""Attention among tokens that fall into the same bucket of a hash."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ordinate.shapes import Keys, Outputs, Queries, Values

# a token that sees nothing else sees itself; what is hidden weighs exactly 0 beside either
ITSELF, HIDDEN = -1e5, -1e9
Buckets = Int[Tensor, "b h rounds n"]
Sums = Float[Tensor, "b h i 1"]


@torch.no_grad()
def buckets_of(
    x: Queries, directions: Int[Tensor, "h d rounds columns"], factors: Sequence[int]
) -> Int[Tensor, "b h rounds i"]:
    """In each round, which of some directions and their opposites each vector points at most.

    Args:
        x: the vectors; their length plays no part.
        directions: random ones; factor / 2 columns for each factor.
        factors: how many buckets; the product of several, each with columns of its own.
    """
    along = torch.einsum("bhid, hdrc -> bhric", x, directions.to(x.dtype))
    found, count = along.new_zeros(along.shape[:-1], dtype=torch.long), 1
    for part, factor in zip(along.split([factor // 2 for factor in factors], -1), factors, strict=True):
        if factor > 1:
            found = found + count * torch.cat([part, -part], -1).argmax(-1)
        count *= factor
    return found


@dataclass(frozen=True, eq=False)
class Mates:
    """Who is compared with whom: in each round tokens are sorted by bucket, and by time within one.

        strict:  those at most `reach` places apart in one bucket
        chunks:  of `reach` places each; a query's own and the one before, the last of them before the first

    Args:
        order: the token at each place.
        spot: for each token its place, with gaps between buckets (strict), or its chunk.
        filled: how many chunks hold tokens; None: strict.
        real: False at padding, which nobody sees.
        reach: how far one looks, and the length of a chunk [tokens].
        hides_future: whether later tokens are hidden.
    """

    order: Buckets
    spot: Buckets
    filled: Int[Tensor, "b"] | None
    real: Bool[Tensor, "b 1 n"]
    reach: int
    hides_future: bool

    @classmethod
    def of(cls, buckets: Buckets, padding: int, reach: int, strict: bool, hides_future: bool) -> "Mates":
        """Sort tokens that fell into these buckets; `padding` is the bucket beyond the others that holds padding."""
        order = buckets.argsort(dim=-1, stable=True)
        place = _inverse(order).int()
        real = buckets[:, :1, 0] != padding
        if strict:
            return cls(order, place + (reach + 1) * buckets.int(), None, real, reach, hides_future)
        filled = (real.sum((1, 2)) + reach - 1).div(reach, rounding_mode="floor").clamp(min=1)
        return cls(order, place // reach, filled.int(), real, reach, hides_future)

    @property
    def rounds(self) -> int:
        """How often was hashed."""
        return self.order.shape[2]

    def meet(self, turn: int, i: Int[Tensor, "b h *c i"], j: Int[Tensor, "b h *c j"]) -> Bool[Tensor, "b h *c i j"]:
        """Whether queries i and keys j are brought together in this round."""
        spots = (self.spot[:, :, turn].gather(2, index.flatten(2)).view_as(index) for index in (i, j))
        apart = next(spots)[..., None] - next(spots)[..., None, :]
        if self.filled is None:
            return apart.abs() <= self.reach
        return apart.remainder(self.filled.view(-1, *(1,) * (apart.ndim - 1))) <= 1

    def may(self, i: Int[Tensor, "b h *c i"], j: Int[Tensor, "b h *c j"]) -> Bool[Tensor, "b h *c #i j"]:
        """Whether query i may see key j, whatever the hash says."""
        real = self.real.expand(-1, j.shape[1], -1).gather(2, j.flatten(2)).view_as(j)[..., None, :]
        return real & (j[..., None, :] <= i[..., None]) if self.hides_future else real

    def chunks(self, turn: int) -> tuple[Int[Tensor, "b h c i"], Int[Tensor, "b h c j"], Bool[Tensor, "#b 1 c 1 j"]]:
        """The queries of each chunk of this round, the keys among which are all that they meet, and which count."""
        i = self.order[:, :, turn].unflatten(2, (-1, self.reach))
        own = torch.arange(i.shape[2], device=i.device)[None]
        if self.filled is None:
            sides = (-1, 0) if self.hides_future else (-1, 0, 1)
            near = torch.stack([own + side for side in sides], -1)
            counts = (near >= 0) & (near < i.shape[2])
        else:
            near = torch.stack([(own - 1).remainder(self.filled[:, None]), own.expand(len(self.filled), -1)], -1)
            counts = torch.stack([near[..., 0] != own, torch.ones_like(near[..., 1], dtype=torch.bool)], -1)
        index = near.clamp(0, i.shape[2] - 1).flatten(1)[:, None, :, None].expand(*i.shape[:2], -1, self.reach)
        j = i.gather(2, index).unflatten(2, (-1, near.shape[2])).flatten(3)
        return i, j, counts.repeat_interleave(self.reach, -1)[:, None, :, None]


def compare_all(q: Queries, k: Keys, v: Values, mates: Mates) -> Outputs:
    """The newest queries among all keys, all products made: softmax over whom they meet in any round.

    Args:
        q: queries, the newest of the tokens.
        k: keys of all tokens.
        v: their values.
        mates: who meets whom.
    """
    tokens = torch.arange(k.shape[2], device=k.device).expand(*k.shape[:2], -1)
    i = tokens[..., k.shape[2] - q.shape[2] :]
    seen = mates.meet(0, i, tokens)
    for turn in range(1, mates.rounds):
        seen = seen | mates.meet(turn, i, tokens)
    return _scores(q, k, i, tokens, seen & mates.may(i, tokens)).softmax(-1) @ v


def compare_mates(q: Queries, k: Keys, v: Values, mates: Mates) -> Outputs:
    """The same for all tokens, making those products only that a round needs; chunks must divide the tokens.

    A pair counts in the first round in which it meets. So the rounds share out the union of all pairs, and their sums
    are added: o = sum_r sum_j exp(s_ij) v_j / sum_r sum_j exp(s_ij).
    """
    found = [_round(turn, q, k, v, mates) for turn in range(mates.rounds)]
    highest = reduce(torch.maximum, (top for _, _, top in found))
    shares = [(top - highest).exp() for _, _, top in found] if len(found) > 1 else [1.0]
    whole = reduce(torch.add, (total * share for share, (_, total, _) in zip(shares, found, strict=True)))
    return reduce(torch.add, (o * (share / whole) for share, (o, _, _) in zip(shares, found, strict=True)))


def _round(turn: int, q: Queries, k: Keys, v: Values, mates: Mates) -> tuple[Outputs, Sums, Sums]:
    """Values summed by exp(score - top), the sum of these, and the top, for each query."""
    i, j, counts = mates.chunks(turn)
    seen = mates.meet(turn, i, j) & mates.may(i, j) & counts
    for before in range(turn):
        seen = seen & ~mates.meet(before, i, j)
    scores = _scores(_rows(q, i), _rows(k, j), i, j, seen)
    # its gradient cancels
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
    scores = (q @ k.mT).masked_fill_(i[..., None] == j[..., None, :], ITSELF)
    return scores.masked_fill_(~seen, HIDDEN)


def _inverse(order: Int[Tensor, "*any n"]) -> Int[Tensor, "*any n"]:
    places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter(-1, order, places)


def _rows(x: Float[Tensor, "b h n e"], index: Int[Tensor, "b h *c"]) -> Float[Tensor, "b h *c e"]:
    batch, heads, tokens, width = x.shape
    first = tokens * torch.arange(batch * heads, device=x.device).view(batch, heads, *(1,) * (index.ndim - 2))
    return x.reshape(-1, width).index_select(0, (first + index).flatten()).view(*index.shape, width)
