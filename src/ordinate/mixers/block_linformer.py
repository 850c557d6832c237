"""Causal Linformer: exact attention within a block, learned summaries of the previous blocks."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from ordinate.core.checks import need, need_positive_counts
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._projections import AttentionProjections
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.sdpa import sdpa
from ordinate.schemes._scheme import Placed

Positions = Int[Tensor, "b n"]
HeadTokens = Float[Tensor, "b h _ d"]
Summaries = Float[Tensor, "b g blocks summaries d"]


@dataclass(frozen=True, eq=False)
class BlockLinformerState(MixerState):
    """Cache: summaries of the finished blocks, and keys and values of the unfinished one.

    Args:
        k: keys of the unfinished block.
        v: values of the unfinished block.
        block_length: number of tokens in the unfinished block.
        summary_k: summaries of keys.
        summary_v: summaries of values.
        summary_mask: mask of the valid summaries: rows of a batch may have finished different numbers of blocks.
    """

    k: Float[Tensor, "b g block d"]
    v: Float[Tensor, "b g block d"]
    block_length: Int[Tensor, "b"]
    summary_k: Float[Tensor, "b g j d"]
    summary_v: Float[Tensor, "b g j d"]
    summary_mask: Bool[Tensor, "b j"]


class BlockLinformer(AttentionProjections, SequenceMixer[BlockLinformerState]):
    """Causal Linformer: exact attention within a block, learned summaries of the previous blocks. Ours.

        y_i = softmax(q_i [E K_1, .. E K_(t-1), k_s .. k_i]^T / sqrt(d)) [E V_1, .. E V_(t-1), v_s .. v_i] W_O

    for a token i of block t, which begins with token s and has the keys K_t and values V_t. E has a row for each
    summary and a column for each position in a block, and is shared by keys, values, heads and blocks.

    Args:
        width: columns of the model.
        heads: query heads; each has d = width / heads channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        block: tokens in a block [tokens].
        summaries: number of summaries of each finished block, at most `block`.
        dropout: dropout probability of the attention weights.

    Raises:
        ValueError: sizes that do not fit each other.
    Source: none; Linformer is Wang et al. 2020, https://arxiv.org/abs/2006.04768, whose E mixes all positions, so
        that it has no causal form.
    Departs: the causal form is ours. Keys are summarised after their positions are encoded.
    """

    supported_hooks = frozenset({"encode_query", "encode_key"})
    permutation_equivariant = False
    bidirectional = False

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        block: int = 32,
        summaries: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout)
        need_positive_counts(block=block, summaries=summaries)
        need(
            summaries <= block,
            "summaries must not exceed block",
            f"got block {block}, summaries {summaries}",
            "give fewer summaries, or a longer block",
        )
        self.block = block
        self.summarise = nn.Parameter(torch.randn(summaries, block) * block**-0.5)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: BlockLinformerState | None
    ) -> tuple[Tokens, BlockLinformerState | None]:
        """Attend block by block; blocks are counted from the first token of each row."""
        q, k, v = self.project_qkv(x)
        q, k = at.encode(q, k).pair
        before = self._nothing(k, v) if state is None else state
        padding = torch.zeros_like(before.block_length) if real is None else (~real).sum(1)
        place = before.block_length[:, None] + torch.arange(x.shape[1], device=x.device) - padding[:, None]
        length = self.block * max(1, -(-(x.shape[1] + (0 if state is None else self.block - 1)) // self.block))
        q, k, v = (
            _scatter(begun, new, place, length) for begun, new in ((q[:, :, :0], q), (before.k, k), (before.v, v))
        )
        summaries = [self.summarise.to(y.dtype) @ y.unflatten(2, (-1, self.block)) for y in (k, v)]
        y = self._attended(q, k, v, summaries, before)
        y = y.gather(2, place.clamp(min=0)[:, None, :, None].expand(-1, y.shape[1], -1, y.shape[3]))
        # known without a device synchronisation if there is neither a state nor padding
        finished = None if state is not None or real is not None else x.shape[1] // self.block
        after = self._after(k, v, summaries, before, before.block_length + x.shape[1] - padding, finished)
        return self.output_projection(y), after

    def _nothing(self, k: Keys, v: Values) -> BlockLinformerState:
        filled = torch.zeros(len(k), dtype=torch.long, device=k.device)
        known = torch.zeros(len(k), 0, dtype=torch.bool, device=k.device)
        return BlockLinformerState(k[:, :, :0], v[:, :, :0], filled, k[:, :, :0], v[:, :, :0], known)

    def _attended(
        self, q: Queries, k: Keys, v: Values, summaries: list[Summaries], before: BlockLinformerState
    ) -> Outputs:
        seen = torch.ones(self.block, self.block, dtype=torch.bool, device=q.device).tril()
        known = before.summary_mask[:, None, None].expand(-1, -1, self.block, -1)
        dropout, outs = self.dropout if self.training else 0.0, []
        for place in range(q.shape[2] // self.block):
            block = slice(place * self.block, (place + 1) * self.block)
            visible = pad(seen, (place * len(self.summarise), 0), value=True)
            keys, values = (
                torch.cat([old, made[:, :, :place].flatten(2, 3), own[:, :, block]], 2)
                for old, made, own in zip((before.summary_k, before.summary_v), summaries, (k, v), strict=True)
            )
            if known.shape[3]:
                visible = torch.cat([known, visible.expand(len(known), 1, -1, -1)], -1)
            grouped = k.shape[1] != q.shape[1]
            outs.append(
                sdpa(q[:, :, block], keys, values, visible, dropout=dropout, scale=self.scale, grouped=grouped)
            )
        return torch.cat(outs, 2)

    def _after(
        self,
        k: Keys,
        v: Values,
        summaries: list[Summaries],
        before: BlockLinformerState,
        ends: Int[Tensor, "b"],
        finished: int | None,
    ) -> BlockLinformerState:
        whole = ends // self.block
        most = int(whole.max()) if finished is None else finished
        new = (torch.arange(most, device=k.device) < whole[:, None]).repeat_interleave(len(self.summarise), 1)
        summary_k, summary_v = (
            torch.cat([old, made[:, :, :most].flatten(2, 3)], 2)
            for old, made in zip((before.summary_k, before.summary_v), summaries, strict=True)
        )
        place = (whole * self.block)[:, None] + torch.arange(self.block, device=k.device)
        place = place.clamp(max=k.shape[2] - 1)[:, None, :, None]
        k, v = (y.gather(2, place.expand(-1, y.shape[1], -1, y.shape[3])) for y in (k, v))
        return BlockLinformerState(
            k, v, ends % self.block, summary_k, summary_v, torch.cat([before.summary_mask, new], 1)
        )


def _scatter(begun: HeadTokens, new: HeadTokens, place: Positions, length: int) -> HeadTokens:
    """Tensor of `length` positions: the unfinished block first, new tokens at `place`, 0 elsewhere."""
    # padding has negative positions: it is scattered behind the end and cut off
    place = torch.where(place < 0, length, place)[:, None, :, None].expand(new.shape)
    return pad(begun, (0, 0, 0, length + 1 - begun.shape[2])).scatter(2, place, new)[:, :, :length]
