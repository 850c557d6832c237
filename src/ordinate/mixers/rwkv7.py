"""RWKV-7 (Goose) time mixing: matrix-valued state with a generalised delta rule."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.core.checks import need_positive
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.correction import state_update
from ordinate.ops.delta_rule import delta_rule
from ordinate.ops.gated_norm import gated_norm
from ordinate.ops.matmul import matmul
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.shift import bidirectional, interpolate_previous, last_token, relative_depth, to_float32
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class Rwkv7State(MixerState):
    """Recurrent state of RWKV-7, of constant size.

    Args:
        last: the last token, for the token shift.
        matrices: matrix-valued state of each head.
    """

    last: Float[Tensor, "b width"]
    matrices: Matrices


class Rwkv7(SequenceMixer[Rwkv7State]):
    """RWKV-7 (Goose) time mixing: matrix-valued state per head, updated by a generalised delta rule.

        x'_t = x_{t-1} - x_t;   r, k, v = (x + m_z x') W_z,   z = r, w, k, v, a, g
        w = -e^(-1/2) sigmoid(w_0 + tanh((x + m_w x') B) B');   a = sigmoid(a_0 + (x + m_a x') C C')
        g = sigmoid((x + m_g x') D) D';   c = k c_k / |k c_k|;   k~ = k (1 + (a - 1) c_a)
        S_t = diag(e^{w_t}) S_{t-1} - (a_t c_t)^T (c_t S_{t-1}) + k~_t^T v_t;   y_t = r_t S_t     (for each head)
        out = W_o ((norm of each head(y) + (sum over its channels of r c_r k~) v) * g)

    Args:
        width: columns of the model.
        heads: heads, each of width / heads channels.
        layers: number of layers of the model; the initialisation depends on it.
        layer: index of this layer, from 0.
        decay_rank: columns of B; None: as the authors propose, 2.5 sqrt(width) rounded to a multiple of 32.
        rate_rank: columns of C, the low-rank projection of the in-context learning rate a; None: likewise.
        gate_rank: columns of D; None: 5 sqrt(width), rounded likewise.
    Source: Peng et al. 2025, Goose, section 4, https://arxiv.org/abs/2503.14456; initialisation from
        https://github.com/BlinkDL/RWKV-LM, RWKV-v7, version x070.
    Departs: time mixing only: the model's feed-forward replaces channel mixing. Each layer uses its own values: the
        paper mixes in those of the first layer, which a mixer has no access to. The bidirectional form (our
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
        decay_rank: int | None = None,
        rate_rank: int | None = None,
        gate_rank: int | None = None,
    ) -> None:
        super().__init__()
        need_positive("width", width)
        check_heads(width, heads, heads)
        late, early = relative_depth(layer, layers)
        self.heads = heads
        place, size = torch.arange(width), width // heads
        speeds = torch.tensor([0.2, 0.9, 0.7, 0.7, 0.9, 0.2])
        self.shares = nn.Parameter(1 - (place / width) ** (speeds[:, None] * early))
        far = place / max(1, width - 1)
        # from -1 for the first channel of a head to 1 for its last; squared with sign, so flat in the middle
        within = (place % size - (size - 1) / 2) / max(0.5, (size - 1) / 2)
        within = within * within.abs()
        self.decay = nn.Parameter(-5.5 + 6 * far ** (1 + late**0.3) + 2.5 * within)
        self.decay_in, self.decay_out = _low_rank(width, decay_rank, 2.5, "decay_rank")
        self.rate = nn.Parameter(-0.19 + 0.3 * within + 0.4 * (far - 0.5))
        self.rate_in, self.rate_out = _low_rank(width, rate_rank, 2.5, "rate_rank")
        self.gate_in, self.gate_out = _low_rank(width, gate_rank, 5.0, "gate_rank")
        self.erased = nn.Parameter(0.71 - 0.1 * (far - 0.5))
        self.replaced = nn.Parameter(torch.full((width,), 1.02))
        self.bonus = nn.Parameter(torch.full((heads, size), -0.04))
        spread = width**-0.5
        self.receptance, self.key, self.value = (
            nn.Parameter(torch.empty(width, width).uniform_(-part * spread, part * spread))
            for part in (0.5, 0.05, 0.5)
        )
        # not nn.Linear, whose weights the model would reinitialise
        self.out = nn.Parameter(torch.zeros(width, width))
        self.norm_scale, self.norm_shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Rwkv7State | None
    ) -> tuple[Tokens, Rwkv7State | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        # padding is 0 and on the left, its keys and values are 0: the state stays 0 until the first token
        if at.where.is_causal:
            return self._read(x, state)
        return bidirectional(lambda x: self._read(x, None)[0], x, real), None

    def _read(self, x: Tokens, state: Rwkv7State | None) -> tuple[Tokens, Rwkv7State]:
        before = None if state is None else state.last
        last = last_token(x, before)
        asks, slows, keys, values, rates, gates = interpolate_previous(x, before, self.shares)
        r, k, v = (
            self._heads(to_float32(linear(y, weight)))
            for y, weight in ((asks, self.receptance), (keys, self.key), (values, self.value))
        )
        slow = matmul(torch.tanh(matmul(slows, self.decay_in)), self.decay_out)
        rate = matmul(matmul(rates, self.rate_in), self.rate_out)
        channels = (to_float32(y) for y in (self.decay, self.rate, self.erased, self.replaced))
        w, k, seen, moved = state_update(k, self._heads(to_float32(slow)), self._heads(to_float32(rate)), *channels)
        size = x.shape[2] // self.heads
        start = r.new_zeros(x.shape[0], self.heads, size, size) if state is None else state.matrices
        y, matrices = delta_rule(r, k, v, w, seen, moved, start)
        gate = matmul(torch.sigmoid(matmul(gates, self.gate_in)), self.gate_out)
        y = gated_norm(
            y,
            gate,
            to_float32(self.norm_scale),
            to_float32(self.norm_shift),
            (r, k, v, to_float32(self.bonus).flatten()),
        )
        return linear(y, self.out).to(x.dtype), Rwkv7State(last, matrices)

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return rearrange(x, "b n (h d) -> b h n d", h=self.heads)


def _low_rank(width: int, rank: int | None, usual: float, name: str) -> tuple[nn.Parameter, nn.Parameter]:
    """Two factors of a low-rank matrix whose product is initially 0."""
    rank = max(32, round(usual * width**0.5 / 32) * 32) if rank is None else rank
    need_positive(name, rank)
    gain = 0.1 * max(1, rank / width) ** 0.5
    return nn.Parameter(torch.zeros(width, rank)), nn.Parameter(nn.init.orthogonal_(torch.empty(rank, width), gain))
