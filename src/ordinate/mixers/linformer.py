"""Attention to a fixed number of summaries of the text."""

import torch
from einops import rearrange
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ordinate.checks import need_fraction, need_positive, need_whole
from ordinate.mixer import State, check_heads
from ordinate.ops.align import shifted, skipped
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Context, Queries, Tokens


class Linformer(SequenceMixer[State]):
    """Each token attends to a fixed number of learned summaries of the whole text, at a cost linear in its length.

        y = softmax(q (E x W_K)^T / sqrt(d)) (E x W_V) W_O,   q = x W_Q

    E has a row for each summary and a column for each place in the text, and is shared by keys, values and heads. A
    summary mixes all places: there is no causal form. `block_linformer` is one of ours.

    Args:
        width: columns of the model.
        heads: query heads; each has d = width / heads channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        max_length: longest text that it serves [tokens]; a shorter one has the first columns of E.
        summaries: rows of E; as many as max_length at most.
        dropout: share of attention weights dropped in training.

    Raises:
        ValueError: sizes that do not fit each other.
    Source: Wang et al. 2020, section 4, https://arxiv.org/abs/2006.04768, with E before W_K and W_V, and shared, as
        in the authors' code.
    Departs: no biases; E is born from a normal distribution of variance 1 / max_length, at which summaries are as
        large as tokens (the code's grow with the length); padding is left out of the summaries.
    """

    honours = frozenset()
    equivariant = False
    causal = False
    streams = False
    usual_scheme = "sinusoidal"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        max_length: int,
        summaries: int = 256,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_heads(width, heads, kv_heads)
        for name, value in (("max_length", max_length), ("summaries", summaries)):
            need_whole(name, value)
            need_positive(name, value)
        need_fraction("dropout", dropout)
        self.heads, self.head_width, self.dropout, self.max_length = heads, width // heads, dropout, max_length
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        rows = min(summaries, max_length)
        self.summarise = nn.Parameter(torch.randn(rows, max_length) * max_length**-0.5)

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: State | None
    ) -> tuple[Tokens, State | None]:
        """Summarise, then attend to the summaries."""
        # places are counted from a row's first token on
        told = x if real is None else shifted(x, skipped(real))
        summaries: Context = self.summarise[:, : x.shape[1]].to(x.dtype) @ told
        k, v = (self._split(part) for part in self.key_value(summaries).chunk(2, -1))
        dropout = self.dropout if self.training else 0.0
        q = self._split(self.query(x))
        y = scaled_dot_product_attention(q, k, v, dropout_p=dropout, enable_gqa=k.shape[1] != q.shape[1])
        return self.out(rearrange(y, "b h n d -> b n (h d)")), None

    def _split(self, x: Tokens | Context) -> Queries:
        return rearrange(x, "b n (h d) -> b h n d", d=self.head_width)
