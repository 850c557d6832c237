"""Linformer: attention over a low-rank projection of keys and values along the sequence."""

import torch
from einops import rearrange
from jaxtyping import Bool
from torch import Tensor, nn

from ordinate.core.checks import need, need_fraction, need_positive_counts
from ordinate.core.shapes import Context, Queries, Tokens
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.left_align import padding_counts, roll_left
from ordinate.ops.sdpa import sdpa
from ordinate.schemes._scheme import Placed

# number of rows of E by default
DEFAULT_SUMMARIES = 256


class Linformer(SequenceMixer[MixerState]):
    """Linformer: attention to a fixed number of learned linear summaries of the sequence, at linear cost.

        y = softmax(q (E x W_K)^T / sqrt(d)) (E x W_V) W_O,   q = x W_Q

    E has a row for each summary and a column for each position, and is shared by keys, values and heads. A summary
    mixes all positions, so there is no causal form; `block_linformer` is a causal variant of ours.

    Args:
        width: columns of the model.
        heads: query heads; each has d = width / heads channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        max_length: longest supported sequence [tokens]; a shorter one uses the first columns of E.
        summaries: rows of E, at most max_length; None: 256, or max_length if that is less.
        dropout: dropout probability of the attention weights.

    Raises:
        ValueError: sizes that do not fit each other.
    Source: Wang et al. 2020, section 4, https://arxiv.org/abs/2006.04768, with E before W_K and W_V, and shared, as
        in the authors' code.
    Departs: no biases; E is initialised from a normal distribution of variance 1 / max_length, so that summaries have
        the scale of tokens (in the authors' code they grow with the length); padding is left out of the summaries.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    causal = False
    supports_cache = False
    default_scheme = "sinusoidal"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        max_length: int,
        summaries: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_heads(width, heads, kv_heads)
        rows = min(DEFAULT_SUMMARIES, max_length) if summaries is None else summaries
        need_positive_counts(max_length=max_length, summaries=rows)
        fewer = "summaries must be at most max_length, since each is of some tokens"
        need(rows <= max_length, fewer, f"got {rows} of {max_length}", "give fewer, or leave it out")
        need_fraction("dropout", dropout)
        self.heads, self.head_width, self.dropout, self.max_length = heads, width // heads, dropout, max_length
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.summarise = nn.Parameter(torch.randn(rows, max_length) * max_length**-0.5)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: MixerState | None
    ) -> tuple[Tokens, MixerState | None]:
        """Summarise keys and values along the sequence, then attend to the summaries."""
        # positions are counted from the first token of each row
        aligned = x if real is None else roll_left(x, padding_counts(real))
        summaries: Context = self.summarise[:, : x.shape[1]].to(x.dtype) @ aligned
        k, v = (self._split(part) for part in self.key_value(summaries).chunk(2, -1))
        dropout = self.dropout if self.training else 0.0
        q = self._split(self.query(x))
        y = sdpa(q, k, v, dropout=dropout, grouped=k.shape[1] != q.shape[1])
        return self.out(rearrange(y, "b h n d -> b n (h d)")), None

    def _split(self, x: Tokens | Context) -> Queries:
        return rearrange(x, "b n (h d) -> b h n d", d=self.head_width)
