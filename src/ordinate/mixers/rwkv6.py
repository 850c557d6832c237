"""RWKV-6 (Finch) time mixing: matrix-valued state with data-dependent decay."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from ordinate.core.checks import need_positive
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.decay import decay_rate, decaying_linear_attention
from ordinate.ops.gated_norm import gated_norm
from ordinate.ops.matmul import matmul
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.shift import bidirectional, interpolate_previous, last_token, relative_depth, to_float32
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class Rwkv6State(MixerState):
    """Recurrent state of RWKV-6, of constant size.

    Args:
        last: the last token, for the token shift.
        matrices: matrix-valued state of each head.
    """

    last: Float[Tensor, "b width"]
    matrices: Matrices


class Rwkv6(SequenceMixer[Rwkv6State]):
    """RWKV-6 (Finch) time mixing: matrix-valued state per head with data-dependent decay and token shift.

        x'_t = x_{t-1} - x_t;   l_z = m_z + tanh((x + m x') A) A_z,   z = r, w, k, v, g
        r, k, v = (x + l_z x') W_z;   g = silu((x + l_g x') W_g);   w = -e^(w_0 + tanh((x + l_w x') B) B')
        y_t = r_t (S_{t-1} + diag(u) k_t^T v_t);   S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t     (for each head)
        out = W_o (norm of each head(y) * g)

    Args:
        width: columns of the model.
        heads: heads, each of width / heads channels.
        layers: number of layers of the model; the initialisation depends on it.
        layer: index of this layer, from 0.
        mix_rank: columns of A, the low-rank projection of the data-dependent token shift.
        decay_rank: columns of B, the low-rank projection of the data-dependent decay.
    Source: Peng et al. 2024, Finch, section 4, https://arxiv.org/abs/2404.05892; initialisation from
        https://github.com/BlinkDL/RWKV-LM, RWKV-v5, version x060.
    Departs: time mixing only: the model's feed-forward replaces channel mixing. The bidirectional form (our
        extension) runs in both directions with the same weights and adds the two results. In a model of one layer,
        for which the initialisation would divide by zero, the layer is initialised as the first of many.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        layers: int = 1,
        layer: int = 0,
        mix_rank: int = 32,
        decay_rank: int = 64,
    ) -> None:
        super().__init__()
        for name, size in (("width", width), ("mix_rank", mix_rank), ("decay_rank", decay_rank)):
            need_positive(name, size)
        check_heads(width, heads, heads)
        late, early = relative_depth(layer, layers)
        self.heads = heads
        place = torch.arange(width)
        share, slow = 1 - (place / width) ** early, 1 - (place / width) ** (0.5 * early)
        self.share = nn.Parameter(share)
        self.shares = nn.Parameter(torch.stack([slow, share, share, share - 0.3 * late, slow]))
        self.mix_in = nn.Parameter(torch.zeros(width, 5 * mix_rank))
        self.mix_out = nn.Parameter(torch.empty(5, mix_rank, width).uniform_(-0.01, 0.01))
        far = place / max(1, width - 1)
        self.decay = nn.Parameter(-6 + 5 * far ** (0.7 + 1.3 * late))
        self.decay_in = nn.Parameter(torch.zeros(width, decay_rank))
        self.decay_out = nn.Parameter(torch.empty(decay_rank, width).uniform_(-0.01, 0.01))
        self.bonus = nn.Parameter((late * (1 - far) + 0.1 * ((place + 1) % 3 - 1)).view(heads, -1))
        self.receptance, self.value = (_orthogonal(width, 1.0) for _ in range(2))
        self.key, self.gate = (_orthogonal(width, 0.1) for _ in range(2))
        # not nn.Linear, whose weights the model would reinitialise
        self.out = nn.Parameter(torch.zeros(width, width))
        self.norm_scale, self.norm_shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Rwkv6State | None
    ) -> tuple[Tokens, Rwkv6State | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        # padding is 0 and on the left, its keys and values are 0: the state stays 0 until the first token
        if at.where.is_causal:
            return self._read(x, state)
        return bidirectional(lambda x: self._read(x, None)[0], x, real), None

    def _read(self, x: Tokens, state: Rwkv6State | None) -> tuple[Tokens, Rwkv6State]:
        before = None if state is None else state.last
        last = last_token(x, before)
        (mixed,) = interpolate_previous(x, before, self.share[None])
        low_rank = torch.tanh(matmul(mixed, self.mix_in)).chunk(5, -1)
        extra = (matmul(part, out) for part, out in zip(low_rank, self.mix_out, strict=True))
        asks, slows, keys, values, gates = interpolate_previous(x, before, self.shares, *extra)
        r, k, v = (
            self._heads(linear(y, weight))
            for y, weight in ((asks, self.receptance), (keys, self.key), (values, self.value))
        )
        w = -decay_rate(
            to_float32(self.decay) + to_float32(matmul(torch.tanh(matmul(slows, self.decay_in)), self.decay_out))
        )
        size = x.shape[2] // self.heads
        start = r.new_zeros(x.shape[0], self.heads, size, size) if state is None else state.matrices
        y, matrices = decaying_linear_attention(r, k, v, self._heads(w), to_float32(self.bonus), start)
        y = gated_norm(y, silu(linear(gates, self.gate)), to_float32(self.norm_scale), to_float32(self.norm_shift))
        return linear(y, self.out).to(x.dtype), Rwkv6State(last, matrices)

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return rearrange(to_float32(x), "b n (h d) -> b h n d", h=self.heads)


def _orthogonal(width: int, gain: float) -> nn.Parameter:
    return nn.Parameter(nn.init.orthogonal_(torch.empty(width, width), gain))
