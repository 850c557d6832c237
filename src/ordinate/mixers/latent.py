"""Multi-head latent attention (MLA): keys and values of all heads from one small vector of each token."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need_positive, need_type
from ordinate.core.shapes import EncodedQueries, Outputs, Queries, Tokens
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._latent_options import LatentOptions
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._projections import AttentionMixer
from ordinate.ops.linear_layer import Linear, weight_and_bias
from ordinate.ops.rms_norm import RMSNorm
from ordinate.schemes._scheme import Placed


class Latent(AttentionMixer):
    """Multi-head latent attention (MLA): keys and values are linear maps of one normalised latent vector of a token.

        c = norm(x W_c),   k_h = [c W_kh, R(x W_r)],   v_h = c W_vh
        q_h = [a W_qh, R(a W_rh)],   a = x, or norm(x W_a) with a `query_rank`
        y = concatenation over heads of softmax(q_h k_h^T / sqrt(d) + bias) v_h, times W_O

    R is the encoding of position (RoPE's rotation), of `head_width` channels; those of the keys are shared by all
    heads (decoupled RoPE), since a rotation between W_qh and W_kh would depend on the offset. d counts all channels
    of a key. The cache has c, as its values, and R(x W_r), as its keys, of one head. A token that continues a cache
    is compared with c itself, by q_h W_kh^T, and its output is the mean of c times W_vh: attention with one key head.

    Args:
        width: columns of the model.
        heads: heads.
        head_width: channels of a head in which position is encoded; None: width / heads.
        dropout: dropout probability of the attention weights.
        variant: sizes of the latent vectors and of the other channels, the scale, biases:
            `latent:variant.rank=64,variant.content_width=16`.

    Raises:
        ValueError: sizes that do not fit.
    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1, https://arxiv.org/abs/2405.04434; the norms are those of its
        code.
    Departs: nowhere.
    """

    # others would see, or add to, only a part of the channels of a head
    supported_hooks = frozenset({"encode_query", "encode_key", "bias"})
    supports_cross_attention = False

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int | None = None,
        dropout: float = 0.0,
        variant: LatentOptions | None = None,
    ) -> None:
        need_type("variant", variant, LatentOptions, "give LatentOptions(...), or leave it out")
        variant = LatentOptions() if variant is None else variant
        need_positive("heads", heads)
        shared = width // heads if head_width is None else head_width
        need_positive("head_width", shared)
        content, value, rank = variant.widths(shared)
        scale = (content + shared) ** -0.5 if variant.scale is None else variant.scale
        options = AttentionOptions(head_width=value, scale=scale, bias=variant.bias)
        super().__init__(width, heads, None, dropout, options)
        self.key_widths, self.latent_widths = [content, shared], [rank, shared]
        self.project = Linear(width, rank + shared, bias=variant.bias)
        self.latent_norm = RMSNorm(rank, eps=variant.norm_eps)
        self.expand = Linear(rank, heads * (content + value), bias=False)
        wide = width if variant.query_rank is None else variant.query_rank
        direct = variant.query_rank is None
        self.query_down = None if direct else Linear(width, wide, bias=variant.bias)
        self.query_norm = None if direct else RMSNorm(wide, eps=variant.norm_eps)
        self.query = Linear(wide, heads * (content + shared), bias=False)

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, with all sizes of a head and of the latent vector."""
        shared = options["width"] // options["heads"] if options["head_width"] is None else options["head_width"]
        variant = LatentOptions() if options["variant"] is None else options["variant"]
        content, value, rank = variant.widths(shared)
        sized = replace(variant, content_width=content, value_width=value, rank=rank)
        return {**options, "head_width": shared, "variant": sized}

    @property
    def encoded_width(self) -> int:
        """Channels of each query and key that a scheme encodes: those of the key that heads share."""
        return self.key_widths[1]

    def self_attention(self, x: Tokens, at: Placed, state: KVCache | None) -> tuple[Tokens, KVCache]:
        """Self-attention of the tokens of `x`, over the cache and themselves; returns the extended cache too."""
        content, positional = self._queries(x).split(self.key_widths, -1)
        latent, key = self.project(x)[:, None].split(self.latent_widths, -1)
        latent = _normalised(self.latent_norm, latent)
        new = at.encode(positional, key, into=None if state is None else state.reserve(key))
        one = state is not None and x.shape[1] == 1
        state = KVCache(new.k, latent) if state is None else state.append(new.k, latent)
        attended = self._of_latents if one else self._of_heads
        return self.output_projection(attended(content, new.q, state, at)), state

    def _queries(self, x: Tokens) -> Queries:
        """Queries of all channels, before positions are encoded."""
        down, norm = self.query_down, self.query_norm
        rows = x if down is None or norm is None else _normalised(norm, down(x))
        return self.query(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _of_heads(self, content: Queries, encoded: EncodedQueries, past: KVCache, at: Placed) -> Outputs:
        """Attention over the keys and values of each head, made of the latent vectors."""
        made = self.expand(past.v[:, 0]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = made.split([self.key_widths[0], self.head_width], -1)
        k = torch.cat([k, past.k.expand(-1, self.heads, -1, -1)], -1)
        return self.attention(torch.cat([content, encoded], -1), k, v, at)

    def _of_latents(self, content: Queries, encoded: EncodedQueries, past: KVCache, at: Placed) -> Outputs:
        """The same, over the latent vectors themselves, with the maps to keys and values applied to the queries."""
        of_keys, of_values = self._maps()
        q = torch.cat([content @ of_keys, encoded], -1)
        seen = self.attention(q, torch.cat([past.v, past.k], -1), past.v, at)
        return seen @ of_values.mT

    def _maps(self) -> tuple[Float[Tensor, "h d rank"], Float[Tensor, "h e rank"]]:
        """The maps of latent vectors to the keys and to the values of each head."""
        rows = weight_and_bias(self.expand)[0].unflatten(0, (self.heads, -1))
        keys, values = rows.split([self.key_widths[0], self.head_width], 1)
        return keys, values


def _normalised(norm: RMSNorm, x: Float[Tensor, "*any rank"]) -> Float[Tensor, "*any rank"]:
    # with autocast the projection is in 16 bits, and the weights of the norm are not
    return norm(x.to(norm.weight.dtype))
