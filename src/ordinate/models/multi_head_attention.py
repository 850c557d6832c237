"""Multi-head attention with a positional scheme, as a module for any PyTorch model."""

from typing import Any, cast

import torch
from torch import nn

from ordinate.core.checks import need, need_type, need_window
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Context, Tokens
from ordinate.core.tensors import need_vectors
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._projections import AttentionProjections
from ordinate.models.attention_scheme import attention_scheme
from ordinate.schemes._scheme import Scheme


class MultiHeadAttention(AttentionProjections):
    """Multi-head attention with a positional scheme, for use in any PyTorch model.

        y = softmax(q k^T / sqrt(d) + bias) v W_O,   q = x W_Q,   [k, v] = (x or context) [W_K, W_V]

    Self-attention, self-attention with a KV cache (`state`), or cross-attention (`context`). The scheme encodes
    positions into queries and keys, biases the scores, or both.

    Args:
        width: columns of the model.
        heads: query heads.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        scheme: positional scheme, by name with options, as a class, or as an instance; None: no positions (NoPE).
        causal: whether to apply a causal mask: each token attends to itself and earlier tokens only.
        window: sliding window, how many tokens each one attends to at most [tokens], itself included; None: all.
        dropout: dropout probability of the attention weights.
        variant: further options: biases, QK norm, soft-capping, sinks; None: none of them.

    Raises:
        ValueError: sizes that do not fit each other or the scheme, or a scheme that adds position embeddings to
            tokens.
    Source: Vaswani et al. 2017, section 3.2, https://arxiv.org/abs/1706.03762; grouped queries from Ainslie et al.
        2023, GQA, https://arxiv.org/abs/2305.13245.
    Departs: no biases in the projections unless the variant says so.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        scheme: str | Scheme | type[Scheme] | None = None,
        causal: bool = True,
        window: int | None = None,
        dropout: float = 0.0,
        variant: AttentionOptions | None = None,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, variant)
        need_window(window)
        sizes = {"width": width, "heads": heads, "kv_heads": kv_heads or heads, "head_width": self.head_width}
        self.scheme = attention_scheme(scheme, sizes)
        self.causal, self.window = causal, window

    def reset_parameters(self) -> None:
        """Initialise all parameters anew, those of the scheme too."""
        for part in self.children():
            if not isinstance(part, nn.Identity):
                cast(Any, part).reset_parameters()
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def forward(
        self,
        x: Tokens,
        context: Context | KVCache | None = None,
        where: Geometry | None = None,
        state: KVCache | None = None,
    ) -> tuple[Tokens, KVCache]:
        """Compute self-attention, or cross-attention if a context is given.

        Args:
            x: tokens that the queries are made of.
            context: sequence for cross-attention; or the keys and values that an earlier call with it returned, so
                that they are not computed again.
            where: positions and mask; None: one sequence that continues the cache, or, for cross-attention, all of
                the context, with positions of both sequences from 0.
            state: KV cache of the previous tokens.

        Returns:
            The output tokens, and the keys and values attended to (the extended cache).

        Raises:
            TypeError: a state that is no KV cache.
            ValueError: tensors of wrong shapes, or a geometry for other sizes, another causal mask or another window.
        """
        self._check_tokens("x", x)
        need_type("state", state, KVCache, "give what the call for the past tokens returned")
        if context is None:
            where = self._geometry(x, state) if where is None else where
            self._check_geometry(where)
            return self.self_attention(x, self.scheme.at(where), state)
        need(state is None, "context and state exclude each other", "got both", "leave one of them out")
        if not isinstance(context, KVCache):
            self._check_tokens("context", context)
        if where is None:
            where = _cross(x, context)
        at = self.scheme.at(where)
        if not isinstance(context, KVCache):
            context = self.project_context(context, self.scheme, at.where.k_pos)
        return self.cross_attention(x, context, at), context

    def _geometry(self, x: Tokens, state: KVCache | None) -> Geometry:
        if self.causal:
            cached = 0 if state is None else state.k.shape[2]
            return Geometry.causal(x.shape[1], cached=cached, window=self.window, device=x.device)
        need(
            state is None,
            "bidirectional attention has no KV cache",
            "got a state",
            "give `where` explicitly, or build the module with causal=True",
        )
        return Geometry.full(x.shape[1], window=self.window, device=x.device)

    def _check_geometry(self, where: Geometry) -> None:
        for name, made, came in (
            ("causal", self.causal, where.is_causal),
            ("window", self.window, where.window),
        ):
            need(
                made == came,
                f"the geometry must match the module, which has {name}={made}",
                f"got a geometry with {came}",
                f"build both with the same {name}",
            )

    def _check_tokens(self, name: str, x: Tokens) -> None:
        need_vectors(name, x, "batch, tokens, width")
        must, came = f"{name} must be {self.width} columns wide", lambda: f"got {tuple(x.shape)}"
        need(x.shape[2] == self.width, must, came, "project it to that width")


def _cross(x: Tokens, context: Context | KVCache) -> Geometry:
    keys = context.k.shape[2] if isinstance(context, KVCache) else context.shape[1]
    q_pos, k_pos = (torch.arange(tokens, device=x.device)[None, :, None] for tokens in (x.shape[1], keys))
    return Geometry(q_pos, k_pos, consecutive=True)
