"""Gated linear attention (GLA): linear attention with a data-dependent decay of each key channel."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ordinate.core.checks import need, need_positive, need_whole
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.decay import read_after_update
from ordinate.ops.head_norm import head_norm
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.shift import bidirectional
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class GatedLinearState(MixerState):
    """Recurrent state of gated linear attention, of constant size.

    Args:
        matrices: matrix-valued state of each head.
    """

    matrices: Matrices


class GatedLinearAttention(SequenceMixer[GatedLinearState]):
    """Gated linear attention (GLA): linear attention with a data-dependent decay of each key channel.

        q, k, v = x W_q, x W_k, x W_v;   w = log sigmoid(x A A' + b) / temperature           (log decay)
        S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t;   y_t = q_t S_t / sqrt(d)                    (for each head)
        out = W_o (RMS norm of each head(y) * silu(x W_g))

    Args:
        width: columns of the model.
        heads: heads, each with width / heads channels of values, and half as many of queries and keys, d.
        decay_rank: columns of A, the low-rank projection of the decay.
        temperature: divides the log decay, so that the state decays slowly at first.
    Source: Yang et al. 2023, Gated Linear Attention, https://arxiv.org/abs/2312.06635, section 4.4, and the layer of
        https://github.com/fla-org/flash-linear-attention.
    Departs: the RMS norm of each head in place of the layer norm of the paper's formula, as in the authors' layer.
        The bidirectional form (our extension) runs in both directions with the same weights and adds the two results.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, *, width: int, heads: int, decay_rank: int = 16, temperature: float = 16.0) -> None:
        super().__init__()
        check_heads(width, heads, heads)
        need_whole("decay_rank", decay_rank)
        for name, value in (("decay_rank", decay_rank), ("temperature", temperature)):
            need_positive(name, value)
        need(
            width // heads % 2 == 0,
            "gla needs an even number of channels of a head: keys have half as many as values",
            f"got {width // heads}",
            "choose heads that divide width / 2",
        )
        self.heads, self.temperature, self.widths = heads, temperature, [width // 2, width // 2, width]
        self.project = nn.Linear(width, 2 * width, bias=False)
        self.decay_in, self.decay_out = nn.Linear(width, decay_rank, bias=False), nn.Linear(decay_rank, width // 2)
        self.gate = nn.Linear(width, width, bias=False)
        self.norm_scale = nn.Parameter(torch.ones(width // heads))
        self.out = nn.Linear(width, width, bias=False)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: GatedLinearState | None
    ) -> tuple[Tokens, GatedLinearState | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        # padding is 0 and on the left, its keys and values are 0: the state stays 0 until the first token
        if at.where.is_causal:
            return self._read(x, state)
        return bidirectional(lambda x: self._read(x, None)[0], x, real), None

    def _read(self, x: Tokens, state: GatedLinearState | None) -> tuple[Tokens, GatedLinearState]:
        q, k, v = (self._heads(part) for part in self.project(x).split(self.widths, -1))
        w = logsigmoid(self._heads(self.decay_out(self.decay_in(x)))) / self.temperature
        start = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3]) if state is None else state.matrices
        y, matrices = read_after_update(q * q.shape[3] ** -0.5, k, v, w, start)
        y = head_norm(y, self.norm_scale, self.gate(x))
        return self.out(y.to(x.dtype)), GatedLinearState(matrices)

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return rearrange(at_least_float32(x), "b n (h d) -> b h n d", h=self.heads)
