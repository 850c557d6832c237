"""Longformer: sliding-window attention plus a few global tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ordinate.attention._sdpa import masked_attention
from ordinate.core.checks import need_positive, need_whole, need_window
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values, Visible
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._projections import AttentionProjections
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.blocks import overlapping_pieces, round_up_to_blocks, window_block_rows
from ordinate.schemes._scheme import Placed

# keys are padded to a multiple of this, which matrix kernels handle faster
KEY_MULTIPLE = 16
GlobalKeys = Float[Tensor, "b g global e"]
KeysValues = tuple[Tensor, Tensor]
Positions = Int[Tensor, "b places"]


@dataclass(frozen=True, eq=False)
class LongformerState(MixerState):
    """Cache of the causal form.

    Args:
        k: keys of the tokens in the window.
        v: values of the tokens in the window.
        global_k: keys of the global tokens, for local queries.
        global_v: values of the global tokens, for local queries.
        global_query_k: keys of the global tokens by the global projections, for global queries.
        global_query_v: values of the global tokens by the global projections.
        tokens: number of tokens so far, without padding.
    """

    k: Keys
    v: Values
    global_k: GlobalKeys
    global_v: GlobalKeys
    global_query_k: GlobalKeys
    global_query_v: GlobalKeys
    tokens: Int[Tensor, "b"]


class Longformer(AttentionProjections, SequenceMixer[LongformerState]):
    """Longformer: sliding-window softmax attention, plus global tokens that attend to and are attended by all.

        y_i = softmax(q_i k_j^T / sqrt(d)) v_j, times W_O, over |i - j| < w and over the global j, each once
        y_g = the same over all j, with separate W_Q, W_K, W_V, for a global token g

    A global token can aggregate the whole sequence and distribute the result in the next layer. Time is proportional
    to tokens times window. In the causal form tokens, global ones included, attend to earlier tokens only.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        head_width: d; None: width / heads.
        window: w, the window including the token itself [tokens]; in the bidirectional form, to either side.
        global_tokens: number of global tokens, the first ones of each sequence.
        dropout: dropout probability of the attention weights.
    Source: Beltagy et al. 2020, Longformer, section 3, https://arxiv.org/abs/2004.05150.
    Departs: w counts the token itself and one side (`attention_window` of transformers is 2 w - 2); global tokens are
        the first of a sequence; the causal form with global tokens is ours; no dilation; no biases in the
        projections.
    """

    confines_nonfinite = True
    supported_hooks = frozenset({"encode_query", "encode_key"})
    permutation_equivariant = False

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
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width))
        need_window(window)
        need_whole("global_tokens", global_tokens)
        need_positive("global_tokens", global_tokens)
        self.window, self.global_tokens = window, global_tokens
        self.project_global = nn.Linear(width, sum(self.widths), bias=False)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: LongformerState | None
    ) -> tuple[Tokens, LongformerState | None]:
        """Compute local attention for all tokens, and replace it by global attention at the global tokens."""
        if not x.shape[1]:
            return x, state
        q, k, v = self.project_qkv(x)
        q, k = at.encode(q, k).pair
        state = self._empty(k, v) if state is None else state
        slots = _GlobalTokens.of(x, real, state, self.global_tokens)
        global_k, global_v = slots.kept(k, state.global_k), slots.kept(v, state.global_v)
        near_k, near_v = torch.cat([state.k, k], 2), torch.cat([state.v, v], 2)
        causal = at.where.is_causal
        y = self._near(q, (near_k, near_v), (global_k, global_v), slots.place, causal)
        own, own_k, own_v = (self._own_causal if causal else self._own)(x, at, slots, state)
        mine = slots.place[:, -x.shape[1] :]
        is_global = (mine >= 0) & (mine < self.global_tokens)
        y = torch.where(is_global[:, None, :, None], _taken(own, mine.clamp(0, self.global_tokens - 1)), y)
        if not causal:
            return self.output_projection(y), None
        left_over = max(0, near_k.shape[2] - self.window + 1)
        # copies: views would keep the dropped tokens alive
        near_k, near_v = (part[:, :, left_over:].clone() for part in (near_k, near_v))
        return self.output_projection(y), LongformerState(
            near_k, near_v, global_k, global_v, own_k, own_v, mine[:, -1] + 1
        )

    def _empty(self, k: Keys, v: Values) -> LongformerState:
        """Empty cache, before the first token."""
        none, slots = (k[:, :, :0], v[:, :, :0]), k.new_zeros(*k.shape[:2], self.global_tokens, k.shape[3])
        empty = v.new_zeros(*v.shape[:2], self.global_tokens, v.shape[3])
        return LongformerState(
            *none, slots, empty, slots, empty, torch.zeros(len(k), dtype=torch.long, device=k.device)
        )

    def _near(self, q: Queries, near: KeysValues, shared: KeysValues, place: Positions, causal: bool) -> Outputs:
        """Local attention: window and global tokens, computed block by block."""
        # limited to the number of tokens: otherwise blocks of padding would be computed
        tokens, reach = q.shape[2], min(self.window, near[0].shape[2]) - 1
        rows = min(window_block_rows(reach), tokens)
        behind, count = round_up_to_blocks(reach, rows), -(-tokens // rows)
        ahead, fill = 0 if causal else behind, count * rows - tokens
        length = behind + rows + ahead
        # cached tokens precede the first block
        front, back = behind - (near[0].shape[2] - tokens), fill + ahead
        q = overlapping_pieces(pad(q.mT, (0, fill)), rows, rows).mT.flatten(0, 1)
        # masked columns that pad the global keys to a multiple of EVEN
        spare = -self.global_tokens % KEY_MULTIPLE
        k, v = (
            _with_global(overlapping_pieces(pad(x.mT, (front, back)), length, rows).mT, y, spare)
            for x, y in zip(near, shared, strict=True)
        )
        query_place = overlapping_pieces(pad(place[:, -tokens:], (0, fill), value=-1), rows, rows).flatten(0, 1)
        key_place = overlapping_pieces(pad(place, (front, back), value=-1), length, rows).flatten(0, 1)
        ahead_by = torch.arange(length, device=q.device) - behind - torch.arange(rows, device=q.device)[:, None]
        in_reach = (ahead_by.abs() <= reach) & ((ahead_by <= 0) | (not causal))
        # every query attends at least to itself: padding would give NaN rows otherwise; its result is not used
        seen = in_reach & (key_place >= self.global_tokens)[:, None] | (ahead_by == 0)
        slot = torch.arange(self.global_tokens, device=q.device)
        last = query_place if causal else place.amax(1).repeat_interleave(count)[:, None].expand_as(query_place)
        seen = torch.cat([seen, pad(slot <= last[..., None], (0, spare))], -1)
        out = self._sdpa(q, k, v, seen).unflatten(0, (-1, count))
        return out.transpose(1, 2).flatten(2, 3)[:, :, :tokens]

    def _own(
        self, x: Tokens, at: Placed, slots: "_GlobalTokens", state: LongformerState
    ) -> tuple[Outputs, GlobalKeys, GlobalKeys]:
        """Global attention: from the global tokens to all, with the global projections."""
        q, k, v = self._heads_global(x)
        q, k = at.encode(q, k).pair
        real = slots.place >= 0
        # a row of padding only attends to all of it, which avoids NaN; its result is not used
        seen = (real | ~real.any(1, keepdim=True))[:, None].expand(-1, self.global_tokens, -1)
        return self._sdpa(_taken(q, slots.index), k, v, seen), state.global_query_k, state.global_query_v

    def _own_causal(
        self, x: Tokens, at: Placed, slots: "_GlobalTokens", state: LongformerState
    ) -> tuple[Outputs, GlobalKeys, GlobalKeys]:
        """Causal global attention: each global token attends to itself and earlier ones, which are all global."""
        rows = torch.arange(len(x), device=x.device)[:, None]
        q, k, v = self._heads_global(x[rows, slots.index])
        pos = at.where.q_pos.expand(len(x), -1, -1)[rows, slots.index]
        q, k = at.scheme.encode_query(q, pos), at.scheme.encode_key(k, pos)
        k, v = (
            torch.where(slots.new[:, None, :, None], *pair)
            for pair in ((k, state.global_query_k), (v, state.global_query_v))
        )
        seen = torch.ones(self.global_tokens, self.global_tokens, dtype=torch.bool, device=x.device).tril()
        return self._sdpa(q, k, v, seen.expand(len(x), -1, -1)), k, v

    def _heads_global(self, x: Tokens) -> tuple[Queries, Keys, Values]:
        q, k, v = (self.split_heads(part) for part in self.project_global(x).split(self.widths, -1))
        return q, k, v

    def _sdpa(self, q: Queries, k: Keys, v: Values, seen: Visible) -> Outputs:
        return masked_attention(q, k, v, seen, scale=self.scale, dropout=self.dropout if self.training else 0.0)


@dataclass(frozen=True, eq=False)
class _GlobalTokens:
    """Which tokens of the current call are global.

    Args:
        place: position of each token in its sequence, cached tokens first; negative at padding.
        index: index of each global token in the current call; arbitrary if it is not part of it.
        new: whether each global token is part of the current call.
    """

    place: Positions
    index: Int[Tensor, "b global"]
    new: Bool[Tensor, "b global"]

    @classmethod
    def of(cls, x: Tokens, real: Bool[Tensor, "b n"] | None, state: LongformerState, count: int) -> "_GlobalTokens":
        begin = state.tokens if real is None else state.tokens - (~real).sum(1)
        place = begin[:, None] + torch.arange(-state.k.shape[2], x.shape[1], device=x.device)
        index = torch.arange(count, device=x.device) - begin[:, None]
        return cls(place, index.clamp(0, x.shape[1] - 1), (index >= 0) & (index < x.shape[1]))

    def kept(self, new: Keys, before: GlobalKeys) -> GlobalKeys:
        """Values at the global tokens: from the current call, or from the cache."""
        return torch.where(self.new[:, None, :, None], _taken(new, self.index), before)


def _with_global(
    near: Float[Tensor, "b count g length e"], few: GlobalKeys, spare: int
) -> Float[Tensor, "blocks g columns e"]:
    """Keys or values of each block: the window, the global tokens, and padding columns. Blocks join the batch."""
    few = pad(few, (0, 0, 0, spare))[:, None].expand(-1, near.shape[1], -1, -1, -1)
    return torch.cat([near, few], 3).flatten(0, 1)


def _taken(x: Keys, index: Int[Tensor, "b some"]) -> Float[Tensor, "b g some d"]:
    """Select tokens of each row by index."""
    return x.take_along_dim(index[:, None, :, None], 2)
