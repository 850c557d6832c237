"""RWKV-7 (Goose): heads keep matrices that tokens correct, by a delta rule of their own choice."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.checks import need_positive
from ordinate.mixer import State, check_heads
from ordinate.native.recurrence import Matrices
from ordinate.ops.correction import correction
from ordinate.ops.delta import corrected
from ordinate.ops.gated_norm import gated_norm
from ordinate.ops.product import multiplied
from ordinate.ops.shift import blended, both_ways, depth, newest, wide
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens


@dataclass(frozen=True, eq=False)
class Rwkv7State(State):
    """What RWKV-7 remembers: the same numbers however long the text was.

    Args:
        last: the newest token.
        matrices: what each head has written.
    """

    last: Float[Tensor, "b width"]
    matrices: Matrices


class Rwkv7(SequenceMixer[Rwkv7State]):
    """Each head keeps a matrix: a token looks up what stands at its key, and replaces a part of it by its value.

        x'_t = x_{t-1} - x_t;   r, k, v = (x + m_z x') W_z,   z = r, w, k, v, a, g
        w = -e^(-1/2) sigmoid(w_0 + tanh((x + m_w x') B) B');   a = sigmoid(a_0 + (x + m_a x') C C')
        g = sigmoid((x + m_g x') D) D';   c = k c_k / |k c_k|;   k~ = k (1 + (a - 1) c_a)
        S_t = diag(e^{w_t}) S_{t-1} - (a_t c_t)^T (c_t S_{t-1}) + k~_t^T v_t;   y_t = r_t S_t     (for each head)
        out = W_o ((norm of each head(y) + (sum over its channels of r c_r k~) v) * g)

    Args:
        width: columns of the model.
        heads: matrices; each serves width / heads channels.
        layers: layers of the model; numbers at birth depend on it.
        layer: which of them this is, from 0.
        decay_rank: columns of B; None: as the authors propose, 2.5 sqrt(width) in steps of 32.
        rate_rank: columns of C, through which a token says how much it replaces; None: the same.
        gate_rank: columns of D; None: twice as many.
    Source: Peng et al. 2025, Goose, section 4, https://arxiv.org/abs/2503.14456; numbers at birth from
        https://github.com/BlinkDL/RWKV-LM, RWKV-v7, version x070.
    Departs: it is the time mixing alone: the model's feed-forward stands in for channel mixing. Values are a layer's
        own: the paper adds a part of the first layer's, which a mixer does not see. Where nothing hides the future
        (our extension), the text is read from both sides with the same weights and the two results are added. A model
        of one layer, at which the numbers at birth divide by zero, counts as the first of many.
    """

    honours = frozenset()
    equivariant = False
    usual_scheme = "none"

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
        late, early = depth(layer, layers)
        self.heads = heads
        place, size = torch.arange(width), width // heads
        speeds = torch.tensor([0.2, 0.9, 0.7, 0.7, 0.9, 0.2])
        self.shares = nn.Parameter(1 - (place / width) ** (speeds[:, None] * early))
        far = place / max(1, width - 1)
        # from -1 for the first channel of a head to 1 for its last, slow in the middle
        within = (place % size - (size - 1) / 2) / max(0.5, (size - 1) / 2)
        within = within * within.abs()
        self.decay = nn.Parameter(-5.5 + 6 * far ** (1 + late**0.3) + 2.5 * within)
        self.decay_in, self.decay_out = _through(width, decay_rank, 2.5, "decay_rank")
        self.rate = nn.Parameter(-0.19 + 0.3 * within + 0.4 * (far - 0.5))
        self.rate_in, self.rate_out = _through(width, rate_rank, 2.5, "rate_rank")
        self.gate_in, self.gate_out = _through(width, gate_rank, 5.0, "gate_rank")
        self.erased = nn.Parameter(0.71 - 0.1 * (far - 0.5))
        self.replaced = nn.Parameter(torch.full((width,), 1.02))
        self.bonus = nn.Parameter(torch.full((heads, size), -0.04))
        spread = width**-0.5
        self.receptance, self.key, self.value = (
            nn.Parameter(torch.empty(width, width).uniform_(-part * spread, part * spread))
            for part in (0.5, 0.05, 0.5)
        )
        # not in a linear layer: that would be drawn anew by a model
        self.out = nn.Parameter(torch.zeros(width, width))
        self.norm_scale, self.norm_shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Rwkv7State | None
    ) -> tuple[Tokens, Rwkv7State | None]:
        """Read from left to right, or from both sides."""
        # padding is 0, and so are its keys and values: it writes nothing, and what decays before a text is 0
        if at.where.hides_future:
            return self._read(x, state)
        return both_ways(lambda x: self._read(x, None)[0], x, real), None

    def _read(self, x: Tokens, state: Rwkv7State | None) -> tuple[Tokens, Rwkv7State]:
        before = None if state is None else state.last
        last = newest(x, before)
        asks, slows, keys, values, rates, gates = blended(x, before, self.shares)
        r, k, v = (
            self._heads(wide(linear(y, weight)))
            for y, weight in ((asks, self.receptance), (keys, self.key), (values, self.value))
        )
        slow = multiplied(torch.tanh(multiplied(slows, self.decay_in)), self.decay_out)
        rate = multiplied(multiplied(rates, self.rate_in), self.rate_out)
        channels = (wide(y) for y in (self.decay, self.rate, self.erased, self.replaced))
        w, k, seen, moved = correction(k, self._heads(wide(slow)), self._heads(wide(rate)), *channels)
        size = x.shape[2] // self.heads
        start = r.new_zeros(x.shape[0], self.heads, size, size) if state is None else state.matrices
        y, matrices = corrected(r, k, v, w, seen, moved, start)
        gate = multiplied(torch.sigmoid(multiplied(gates, self.gate_in)), self.gate_out)
        y = gated_norm(y, gate, wide(self.norm_scale), wide(self.norm_shift), (r, k, v, wide(self.bonus).flatten()))
        return linear(y, self.out).to(x.dtype), Rwkv7State(last, matrices)

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return rearrange(x, "b n (h d) -> b h n d", h=self.heads)


def _through(width: int, rank: int | None, usual: float, name: str) -> tuple[nn.Parameter, nn.Parameter]:
    """Two matrices whose product is 0 at birth, by way of so many columns."""
    rank = max(32, round(usual * width**0.5 / 32) * 32) if rank is None else rank
    need_positive(name, rank)
    gain = 0.1 * max(1, rank / width) ** 0.5
    return nn.Parameter(torch.zeros(width, rank)), nn.Parameter(nn.init.orthogonal_(torch.empty(rank, width), gain))
