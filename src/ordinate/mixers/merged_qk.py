"""Attention with a merged query-key matrix: W_Q W_K^T is one matrix M for each head."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import Queries, Tokens, Values
from ordinate.core.tensors import need_size, need_vectors
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import Mixer, MixerState
from ordinate.mixers._projections import AttentionProjections, zero_at_padding
from ordinate.schemes._scheme import Placed

Shared = Float[Tensor, "b shared n channels"]


@dataclass(frozen=True, eq=False)
class MergedQKState(MixerState):
    """Cache of merged attention.

    Args:
        k: what queries are compared with: the tokens themselves, shared by all heads, or, with a rank, keys of each
            head.
        v: values.
    """

    k: Shared
    v: Values

    def append(self, k: Shared, v: Values) -> "MergedQKState":
        """Return a cache with newer keys and values appended."""
        need(
            self.k.shape[:2] == k.shape[:2],
            "cached and new keys need the same batch size and heads",
            lambda: f"got {tuple(self.k.shape)} and {tuple(k.shape)}",
            "use the state with the batch and the mixer that returned it",
        )
        return MergedQKState(torch.cat([self.k, k], 2), torch.cat([self.v, v], 2))


class MergedQK(AttentionProjections, Mixer[MergedQKState]):
    """Softmax attention with a merged query-key matrix M per head in place of W_Q W_K^T.

        y = softmax(x M x^T / sqrt(d) + bias) v W_O,   v = x W_V

    Standard attention has M = W_Q W_K^T, of rank d. A full M may have any rank. A low-rank M = U V^T with `rank`
    columns each is standard attention whose queries and keys have another width than its values.

    A full M has width^2 parameters per head instead of 2 width d, and scores are products of width channels instead
    of d. Its cache holds tokens instead of keys. RoPE cannot be merged: it rotates between W_Q and W_K by an angle
    that depends on the offset. So only schemes that embed tokens or add to the scores are supported.

    Args:
        width: columns of the model.
        heads: heads; their values have d channels.
        head_width: d; None: width / heads.
        rank: columns of U and V; None: M is full.
        scale: standard deviation of the model's initial weights; a full M is initialised as a product of W_Q and W_K
            drawn with it.
        dropout: dropout probability of the attention weights.
    Source: the question https://stats.stackexchange.com/q/515477.
    Departs: scores are divided by sqrt(d), as in standard attention, whatever the rank.
    """

    supported_hooks = frozenset({"bias", "value_bias"})
    permutation_equivariant = True
    default_scheme = "alibi"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int | None = None,
        rank: int | None = None,
        scale: float = 0.02,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, None, dropout, AttentionOptions(head_width=head_width))
        self.heads, self.rank = heads, rank
        self.project = nn.Linear(width, heads * self.head_width, bias=False)
        if rank is None:
            w_q, w_k = (scale * torch.randn(heads, width, self.head_width) for _ in range(2))
            self.matrix = nn.Parameter(w_q @ w_k.mT)
        else:
            need_positive("rank", rank)
            self.compare = nn.Linear(width, 2 * heads * rank, bias=False)

    def forward(self, x: Tokens, at: Placed, state: MergedQKState | None = None) -> tuple[Tokens, MergedQKState]:
        """Compute attention of the tokens of `x` over the cache and themselves."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        self.check_geometry(at.where)
        x = zero_at_padding(x, at.where)
        return self.with_causal_gradients(lambda x: self._attended(x, at, state), x, at, state)

    def _attended(self, x: Tokens, at: Placed, state: MergedQKState | None) -> tuple[Tokens, MergedQKState]:
        (q, k), v = self._pairs(x), self.split_heads(self.project(x))
        state = MergedQKState(k, v) if state is None else state.append(k, v)
        # with a full M the tokens are the keys of all heads
        return self.output_projection(self.attention(q, state.k.expand(-1, self.heads, -1, -1), state.v, at)), state

    def _pairs(self, x: Tokens) -> tuple[Queries, Shared]:
        """Queries and keys, whose products are x M x^T."""
        if self.rank is None:
            return torch.einsum("bnw,hwu->bhnu", x, self.matrix), x[:, None]
        q, k = self.compare(x).unflatten(-1, (2, self.heads, self.rank)).permute(2, 0, 3, 1, 4)
        return q, k
