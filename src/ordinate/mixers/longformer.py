"""Attention to the nearest tokens, and to a few that everybody sees."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ordinate.checks import need_positive, need_whole, need_window
from ordinate.fused import masked
from ordinate.mixer import State
from ordinate.ops.bands import block_rows, pieces, whole_blocks
from ordinate.projections import Projections, Variant
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values, Visible

# multiples of so many columns lie well in memory
EVEN = 16
Few = Float[Tensor, "b g global e"]
Pair = tuple[Tensor, Tensor]
Places = Int[Tensor, "b places"]


@dataclass(frozen=True, eq=False)
class Read(State):
    """What the causal Longformer remembers.

    Args:
        k: the keys of the nearest tokens.
        v: their values.
        global_k: the keys by which others find the global tokens.
        global_v: their values.
        own_k: the keys by which global tokens find each other.
        own_v: their values.
        tokens: how many tokens were read, padding left out.
    """

    k: Keys
    v: Values
    global_k: Few
    global_v: Few
    own_k: Few
    own_v: Few
    tokens: Int[Tensor, "b"]


class Longformer(Projections, SequenceMixer[Read]):
    """Softmax attention to the nearest tokens, and to the first of a text, which see and are seen by all.

        y_i = softmax(q_i k_j^T / sqrt(d)) v_j, times W_O, over |i - j| < w and over the global j, each once
        y_g = the same over all j, with W_Q, W_K, W_V of their own, for a global token g

    A first token that sees all can gather what a text is about, and hand it to everyone in the next layer. Time grows
    with the tokens times the window. In the causal form a token sees those before it only, global ones too.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        head_width: d; None: width / heads.
        window: w, how many tokens one sees, itself included [tokens]; where all see all, as many to both sides.
        global_tokens: how many tokens of each text are global, from its first on.
        dropout: share of attention weights dropped in training.
    Source: Beltagy et al. 2020, Longformer, section 3, https://arxiv.org/abs/2004.05150.
    Departs: w counts the token itself and one side (`attention_window` of transformers is 2 w - 2); global tokens are
        the first of a text; the causal form with global tokens is ours; no dilation; no biases in the projections.
    """

    honours = frozenset({"encode_query", "encode_key"})
    equivariant = False

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        window: int = 256,
        global_tokens: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, Variant(head_width=head_width))
        need_window(window)
        need_whole("global_tokens", global_tokens)
        need_positive("global_tokens", global_tokens)
        self.window, self.global_tokens = window, global_tokens
        self.project_global = nn.Linear(width, sum(self.widths), bias=False)

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Read | None
    ) -> tuple[Tokens, Read | None]:
        """Attend from the tokens of `x` to what is remembered and to themselves."""
        if not x.shape[1]:
            return x, state
        q, k, v = self.project_heads(x)
        q, k = at.encode(q, k)
        state = self._nothing(k, v) if state is None else state
        slots = _Slots.of(x, real, state, self.global_tokens)
        global_k, global_v = slots.kept(k, state.global_k), slots.kept(v, state.global_v)
        near_k, near_v = torch.cat([state.k, k], 2), torch.cat([state.v, v], 2)
        causal = at.where.hides_future
        y = self._near(q, (near_k, near_v), (global_k, global_v), slots.place, causal)
        own, own_k, own_v = (self._own_causal if causal else self._own)(x, at, slots, state)
        mine = slots.place[:, -x.shape[1] :]
        is_global = (mine >= 0) & (mine < self.global_tokens)
        y = torch.where(is_global[:, None, :, None], _taken(own, mine.clamp(0, self.global_tokens - 1)), y)
        if not causal:
            return self.gather(y), None
        left_over = max(0, near_k.shape[2] - self.window + 1)
        # copies: views would keep what is forgotten
        near_k, near_v = (part[:, :, left_over:].clone() for part in (near_k, near_v))
        return self.gather(y), Read(near_k, near_v, global_k, global_v, own_k, own_v, mine[:, -1] + 1)

    def _nothing(self, k: Keys, v: Values) -> Read:
        """The memory before the first token."""
        none, slots = (k[:, :, :0], v[:, :, :0]), k.new_zeros(*k.shape[:2], self.global_tokens, k.shape[3])
        empty = v.new_zeros(*v.shape[:2], self.global_tokens, v.shape[3])
        return Read(*none, slots, empty, slots, empty, torch.zeros(len(k), dtype=torch.long, device=k.device))

    def _near(self, q: Queries, near: Pair, shared: Pair, place: Places, causal: bool) -> Outputs:
        """Attend to the nearest tokens and to the global ones, block by block."""
        # no further than there are tokens: blocks of nothing would be read too
        tokens, reach = q.shape[2], min(self.window, near[0].shape[2]) - 1
        rows = min(block_rows(reach), tokens)
        behind, count = whole_blocks(reach, rows), -(-tokens // rows)
        ahead, fill = 0 if causal else behind, count * rows - tokens
        length = behind + rows + ahead
        # tokens remembered stand before the first block
        front, back = behind - (near[0].shape[2] - tokens), fill + ahead
        q = pieces(pad(q.mT, (0, fill)), rows, rows).mT.flatten(0, 1)
        # a few columns of nothing: keys of even counts are multiplied faster
        spare = -self.global_tokens % EVEN
        k, v = (
            _beside(pieces(pad(x.mT, (front, back)), length, rows).mT, y, spare)
            for x, y in zip(near, shared, strict=True)
        )
        asks = pieces(pad(place[:, -tokens:], (0, fill), value=-1), rows, rows).flatten(0, 1)
        found = pieces(pad(place, (front, back), value=-1), length, rows).flatten(0, 1)
        ahead_by = torch.arange(length, device=q.device) - behind - torch.arange(rows, device=q.device)[:, None]
        in_reach = (ahead_by.abs() <= reach) & ((ahead_by <= 0) | (not causal))
        # a token that sees nothing else sees itself: padding, whose result is not used
        seen = in_reach & (found >= self.global_tokens)[:, None] | (ahead_by == 0)
        slot = torch.arange(self.global_tokens, device=q.device)
        last = asks if causal else place.amax(1).repeat_interleave(count)[:, None].expand_as(asks)
        seen = torch.cat([seen, pad(slot <= last[..., None], (0, spare))], -1)
        out = self._sdpa(q, k, v, seen).unflatten(0, (-1, count))
        return out.transpose(1, 2).flatten(2, 3)[:, :, :tokens]

    def _own(self, x: Tokens, at: Placed, slots: "_Slots", state: Read) -> tuple[Outputs, Few, Few]:
        """Attend from the global tokens to all, by matrices of their own."""
        q, k, v = self._heads_global(x)
        q, k = at.encode(q, k)
        real = slots.place >= 0
        # where all is padding it sees all of it, and is not used
        seen = (real | ~real.any(1, keepdim=True))[:, None].expand(-1, self.global_tokens, -1)
        return self._sdpa(_taken(q, slots.index), k, v, seen), state.own_k, state.own_v

    def _own_causal(self, x: Tokens, at: Placed, slots: "_Slots", state: Read) -> tuple[Outputs, Few, Few]:
        """The same from each global token to those before it, which are global too."""
        rows = torch.arange(len(x), device=x.device)[:, None]
        q, k, v = self._heads_global(x[rows, slots.index])
        pos = at.where.q_pos.expand(len(x), -1, -1)[rows, slots.index]
        q, k = at.scheme.encode_query(q, pos), at.scheme.encode_key(k, pos)
        k, v = (torch.where(slots.new[:, None, :, None], *pair) for pair in ((k, state.own_k), (v, state.own_v)))
        seen = torch.ones(self.global_tokens, self.global_tokens, dtype=torch.bool, device=x.device).tril()
        return self._sdpa(q, k, v, seen.expand(len(x), -1, -1)), k, v

    def _heads_global(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        q, k, v = (self.split_heads(part) for part in self.project_global(x).split(self.widths, -1))
        return q, k, v

    def _sdpa(self, q: Queries, k: Keys, v: Values, seen: Visible) -> Outputs:
        return masked(q, k, v, seen, scale=self.scale, dropout=self.dropout if self.training else 0.0)


@dataclass(frozen=True, eq=False)
class _Slots:
    """Where the global tokens stand among the tokens of a piece.

    Args:
        place: the place of each token in its text, those remembered first; below 0 for padding.
        index: which token of the piece each global one is; any if it is not among them.
        new: whether it is among them.
    """

    place: Places
    index: Int[Tensor, "b global"]
    new: Bool[Tensor, "b global"]

    @classmethod
    def of(cls, x: Tokens, real: Bool[Tensor, "b n"] | None, state: Read, count: int) -> "_Slots":
        begin = state.tokens if real is None else state.tokens - (~real).sum(1)
        place = begin[:, None] + torch.arange(-state.k.shape[2], x.shape[1], device=x.device)
        index = torch.arange(count, device=x.device) - begin[:, None]
        return cls(place, index.clamp(0, x.shape[1] - 1), (index >= 0) & (index < x.shape[1]))

    def kept(self, new: Keys, before: Few) -> Few:
        """What stands at each global token: of these, or as it was before."""
        return torch.where(self.new[:, None, :, None], _taken(new, self.index), before)


def _beside(near: Float[Tensor, "b count g length e"], few: Few, spare: int) -> Float[Tensor, "blocks g columns e"]:
    """What is near each block, the global tokens, and columns of nothing: a batch of blocks."""
    few = pad(few, (0, 0, 0, spare))[:, None].expand(-1, near.shape[1], -1, -1, -1)
    return torch.cat([near, few], 3).flatten(0, 1)


def _taken(x: Keys, index: Int[Tensor, "b some"]) -> Float[Tensor, "b g some d"]:
    """The tokens of each row at these places."""
    return x.take_along_dim(index[:, None, :, None], 2)
