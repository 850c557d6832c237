"""Multi-scale retention (RetNet): linear attention with a fixed decay of each head."""

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.core.checks import need_positive, need_whole
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.head_norm import head_norm
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.scalar_decay import scalar_decay_attention
from ordinate.ops.shift import bidirectional
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class RetentionState(MixerState):
    """Recurrent state of retention, of constant size.

    Args:
        matrices: matrix-valued state of each head.
    """

    matrices: Matrices


class Retention(SequenceMixer[RetentionState]):
    """Multi-scale retention (RetNet): linear attention with a fixed exponential decay of each head.

        q, k, v = x W_q, x W_k, x W_v;   g_h = 1 - 2^(-5-h),   h = 0 .. heads - 1
        S_t = g_h S_{t-1} + k_t^T v_t;   y_t = q_t S_t / sqrt(d)     (for each head)
        out = W_o (RMS norm of each head(y) * silu(x W_g))

    The scheme rotates queries and keys, as RoPE does: the paper derives the rotation and the decay together.

    Args:
        width: columns of the model.
        heads: heads, each with width / heads channels of queries and keys, d.
        value_ratio: channels of a head's values for each channel of its keys.
    Source: Sun et al. 2023, Retentive Network, https://arxiv.org/abs/2307.08621, section 2, and the initialisation of
        https://github.com/microsoft/torchscale: weights Glorot-uniform, all but W_o with gain 2^-2.5.
    Departs: the frequencies are those of the scheme; the authors' code spaces the exponents of 10000 a little wider,
        up to 1. The RMS norm of each head in place of the group norm of the paper's formula, as in the authors' code.
        The two normalisations of the scores that it cancels, up to its epsilon, are left out. The bidirectional form
        (our extension) runs in both directions with the same weights and adds the two results.
    """

    supported_hooks = frozenset({"encode_query", "encode_key"})
    permutation_equivariant = False
    default_scheme = "rope"

    def __init__(self, *, width: int, heads: int, value_ratio: int = 2) -> None:
        super().__init__()
        check_heads(width, heads, heads)
        need_whole("value_ratio", value_ratio)
        need_positive("value_ratio", value_ratio)
        self.heads, self.head_width, values = heads, width // heads, value_ratio * width
        self.widths = [width, width, values, values]
        # not nn.Linear, whose weights the model would reinitialise
        self.weights = nn.Parameter(torch.cat([_glorot(columns, width, 2**-2.5) for columns in self.widths]))
        self.out = nn.Parameter(_glorot(width, values, 1.0))

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: RetentionState | None
    ) -> tuple[Tokens, RetentionState | None]:
        """Encode positions, and run forwards, or in the bidirectional form in both directions."""
        q, k, v, gate = linear(x, self.weights).split(self.widths, -1)
        q, k, v = (rearrange(at_least_float32(part), "b n (h d) -> b h n d", h=self.heads) for part in (q, k, v))
        new = at.encode(q * self.head_width**-0.5, k)
        if at.where.is_causal:
            y, matrices = self._read(new.q, new.k, v, state)
        else:
            joined = rearrange(torch.cat([new.q, new.k, v], -1), "b h n d -> b n (h d)")
            sizes = [new.q.shape[3], new.k.shape[3], v.shape[3]]

            def read(rows: Float[Tensor, "b n joined"]) -> Float[Tensor, "b n values"]:
                q, k, v = rearrange(rows, "b n (h d) -> b h n d", h=self.heads).split(sizes, -1)
                return rearrange(self._read(q, k, v, None)[0], "b h n d -> b n (h d)")

            y, matrices = rearrange(bidirectional(read, joined, real), "b n (h d) -> b h n d", h=self.heads), None
        y = linear(head_norm(y, None, gate).to(x.dtype), self.out)
        return y, None if matrices is None else RetentionState(matrices)

    def _read(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h n d"],
        v: Float[Tensor, "b h n e"],
        state: RetentionState | None,
    ) -> tuple[Float[Tensor, "b h n e"], Matrices]:
        # padding is 0 and on the left, its keys and values are 0: the state stays 0 until the first token
        start = q.new_zeros(*q.shape[:2], k.shape[3], v.shape[3]) if state is None else state.matrices
        decays = [math.log1p(-(2.0 ** (-5 - head))) for head in range(self.heads)]
        # rounded once, from float64, which some devices lack
        logs = torch.tensor(decays, dtype=torch.float64, device="cpu").to(q.device, q.dtype)
        logs = logs[:, None].expand(q.shape[:3])
        return scalar_decay_attention(q, k, v, logs, start)


def _glorot(rows: int, columns: int, gain: float) -> Tensor:
    return nn.init.xavier_uniform_(torch.empty(rows, columns), gain)
