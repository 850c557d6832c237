"""Attention to the block at hand, and to summaries of those before."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from ordinate.checks import need, need_positive, need_whole
from ordinate.mixer import State
from ordinate.projections import Projections
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values

Places = Int[Tensor, "b n"]
Laid = Float[Tensor, "b h _ d"]
Summaries = Float[Tensor, "b g blocks summaries d"]


@dataclass(frozen=True, eq=False)
class Blocks(State):
    """Summaries of the finished blocks, and the tokens of the unfinished one.

    Args:
        k: keys of the unfinished block.
        v: values of it.
        filled: how many tokens it has.
        summary_k: summaries of keys.
        summary_v: summaries of values.
        known: which of them are of finished blocks: rows of a batch may differ.
    """

    k: Float[Tensor, "b g block d"]
    v: Float[Tensor, "b g block d"]
    filled: Int[Tensor, "b"]
    summary_k: Float[Tensor, "b g j d"]
    summary_v: Float[Tensor, "b g j d"]
    known: Bool[Tensor, "b j"]


class BlockLinformer(Projections, SequenceMixer[Blocks]):
    """Linformer for texts read from left to right: exact attention inside a block, summaries of those before. Ours.

        y_i = softmax(q_i [E K_1, .. E K_(t-1), k_s .. k_i]^T / sqrt(d)) [E V_1, .. E V_(t-1), v_s .. v_i] W_O

    for a token i of block t, which begins with token s and has the keys K_t and values V_t. E has a row for each
    summary and a column for each place in a block, and is shared by keys, values, heads and blocks.

    Args:
        width: columns of the model.
        heads: query heads; each has d = width / heads channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        block: places in a block [tokens].
        summaries: of each finished block; `block` of them at most.
        dropout: share of attention weights dropped in training.

    Raises:
        ValueError: sizes that do not fit each other.
    Source: none; Linformer is Wang et al. 2020, https://arxiv.org/abs/2006.04768, whose E mixes all places, so that
        it has no causal form.
    Departs: all of the causal form is ours. Keys are summarised after a scheme has marked them.
    """

    honours = frozenset({"encode_query", "encode_key"})
    equivariant = False
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
        for name, value in (("block", block), ("summaries", summaries)):
            need_whole(name, value)
            need_positive(name, value)
        need(
            summaries <= block,
            "a block has at least as many tokens as summaries",
            f"got block {block}, summaries {summaries}",
            "give fewer summaries, or a longer block",
        )
        self.block = block
        self.summarise = nn.Parameter(torch.randn(summaries, block) * block**-0.5)

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Blocks | None
    ) -> tuple[Tokens, Blocks | None]:
        """Lay the tokens out in blocks that begin with a row's first token, and attend block by block."""
        q, k, v = self.project_heads(x)
        q, k = at.encode(q, k)
        before = self._nothing(k, v) if state is None else state
        padding = torch.zeros_like(before.filled) if real is None else (~real).sum(1)
        place = before.filled[:, None] + torch.arange(x.shape[1], device=x.device) - padding[:, None]
        length = self.block * max(1, -(-(x.shape[1] + (0 if state is None else self.block - 1)) // self.block))
        q, k, v = (
            _laid(begun, new, place, length) for begun, new in ((q[:, :, :0], q), (before.k, k), (before.v, v))
        )
        summaries = [self.summarise.to(y.dtype) @ y.unflatten(2, (-1, self.block)) for y in (k, v)]
        y = self._attended(q, k, v, summaries, before)
        y = y.gather(2, place.clamp(min=0)[:, None, :, None].expand(-1, y.shape[1], -1, y.shape[3]))
        # told without looking at a tensor where nothing was read before
        alike = None if state is not None or real is not None else x.shape[1] // self.block
        after = self._after(k, v, summaries, before, before.filled + x.shape[1] - padding, alike)
        return self.gather(y), after

    def _nothing(self, k: Keys, v: Values) -> Blocks:
        filled = torch.zeros(len(k), dtype=torch.long, device=k.device)
        known = torch.zeros(len(k), 0, dtype=torch.bool, device=k.device)
        return Blocks(k[:, :, :0], v[:, :, :0], filled, k[:, :, :0], v[:, :, :0], known)

    def _attended(self, q: Queries, k: Keys, v: Values, summaries: list[Summaries], before: Blocks) -> Outputs:
        seen = torch.ones(self.block, self.block, dtype=torch.bool, device=q.device).tril()
        known = before.known[:, None, None].expand(-1, -1, self.block, -1)
        dropout, outs = self.dropout if self.training else 0.0, []
        for place in range(q.shape[2] // self.block):
            block = slice(place * self.block, (place + 1) * self.block)
            visible = pad(seen, (place * len(self.summarise), 0), value=True)
            keys, values = (
                torch.cat([told, made[:, :, :place].flatten(2, 3), own[:, :, block]], 2)
                for told, made, own in zip((before.summary_k, before.summary_v), summaries, (k, v), strict=True)
            )
            if known.shape[3]:
                visible = torch.cat([known, visible.expand(len(known), 1, -1, -1)], -1)
            options = {"dropout_p": dropout, "scale": self.scale, "enable_gqa": k.shape[1] != q.shape[1]}
            outs.append(scaled_dot_product_attention(q[:, :, block], keys, values, visible, **options))
        return torch.cat(outs, 2)

    def _after(
        self,
        k: Keys,
        v: Values,
        summaries: list[Summaries],
        before: Blocks,
        ends: Int[Tensor, "b"],
        finished: int | None,
    ) -> Blocks:
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
        return Blocks(k, v, ends % self.block, summary_k, summary_v, torch.cat([before.known, new], 1))


def _laid(begun: Laid, new: Laid, place: Places, length: int) -> Laid:
    """So many places, with what was begun at the first of them and new tokens at theirs; 0 elsewhere."""
    # what has no place goes behind the last
    place = torch.where(place < 0, length, place)[:, None, :, None].expand(new.shape)
    return pad(begun, (0, 0, 0, length + 1 - begun.shape[2])).scatter(2, place, new)[:, :, :length]
