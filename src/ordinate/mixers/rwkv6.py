"""RWKV-6 (Finch): heads write into matrices, and each token decides what they forget."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from ordinate.checks import need_positive
from ordinate.mixer import State, check_heads
from ordinate.native.recurrence import Matrices
from ordinate.ops.decay import decayed
from ordinate.ops.gated_norm import gated_norm
from ordinate.ops.product import multiplied
from ordinate.ops.shift import blended, both_ways, depth, newest, wide
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens


@dataclass(frozen=True, eq=False)
class Rwkv6State(State):
    """What RWKV-6 remembers: the same numbers however long the text was.

    Args:
        last: the newest token.
        matrices: what each head has written.
    """

    last: Float[Tensor, "b width"]
    matrices: Matrices


class Rwkv6(SequenceMixer[Rwkv6State]):
    """Each head keeps a matrix: tokens write values at keys, read by asking, and say how fast each row is forgotten.

        x'_t = x_{t-1} - x_t;   l_z = m_z + tanh((x + m x') A) A_z,   z = r, w, k, v, g
        r, k, v = (x + l_z x') W_z;   g = silu((x + l_g x') W_g);   w = -e^(w_0 + tanh((x + l_w x') B) B')
        y_t = r_t (S_{t-1} + diag(u) k_t^T v_t);   S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t     (for each head)
        out = W_o (norm of each head(y) * g)

    Args:
        width: columns of the model.
        heads: matrices; each serves width / heads channels.
        layers: layers of the model; numbers at birth depend on it.
        layer: which of them this is, from 0.
        mix_rank: columns of A, through which a token says how much of its predecessor it takes.
        decay_rank: columns of B, through which it says what is forgotten.
    Source: Peng et al. 2024, Finch, section 4, https://arxiv.org/abs/2404.05892; numbers at birth from
        https://github.com/BlinkDL/RWKV-LM, RWKV-v5, version x060.
    Departs: it is the time mixing alone: the model's feed-forward stands in for channel mixing. Where nothing hides
        the future (our extension), the text is read from both sides with the same weights and the two results are
        added. A model of one layer, at which the numbers at birth divide by zero, counts as the first of many.
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
        mix_rank: int = 32,
        decay_rank: int = 64,
    ) -> None:
        super().__init__()
        for name, size in (("width", width), ("mix_rank", mix_rank), ("decay_rank", decay_rank)):
            need_positive(name, size)
        check_heads(width, heads, heads)
        late, early = depth(layer, layers)
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
        # not in a linear layer: that would be drawn anew by a model
        self.out = nn.Parameter(torch.zeros(width, width))
        self.norm_scale, self.norm_shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Rwkv6State | None
    ) -> tuple[Tokens, Rwkv6State | None]:
        """Read from left to right, or from both sides."""
        # padding is 0, and so are its keys and values: it writes nothing, and what decays before a text is 0
        if at.where.hides_future:
            return self._read(x, state)
        return both_ways(lambda x: self._read(x, None)[0], x, real), None

    def _read(self, x: Tokens, state: Rwkv6State | None) -> tuple[Tokens, Rwkv6State]:
        before = None if state is None else state.last
        last = newest(x, before)
        (mixed,) = blended(x, before, self.share[None])
        wishes = torch.tanh(multiplied(mixed, self.mix_in)).chunk(5, -1)
        extra = (multiplied(wish, out) for wish, out in zip(wishes, self.mix_out, strict=True))
        asks, slows, keys, values, gates = blended(x, before, self.shares, *extra)
        r, k, v = (
            self._heads(linear(y, weight))
            for y, weight in ((asks, self.receptance), (keys, self.key), (values, self.value))
        )
        w = -torch.exp(
            wide(self.decay) + wide(multiplied(torch.tanh(multiplied(slows, self.decay_in)), self.decay_out))
        )
        size = x.shape[2] // self.heads
        start = r.new_zeros(x.shape[0], self.heads, size, size) if state is None else state.matrices
        y, matrices = decayed(r, k, v, self._heads(w), wide(self.bonus), start)
        y = gated_norm(y, silu(linear(gates, self.gate)), wide(self.norm_scale), wide(self.norm_shift))
        return linear(y, self.out).to(x.dtype), Rwkv6State(last, matrices)

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return rearrange(wide(x), "b n (h d) -> b h n d", h=self.heads)


def _orthogonal(width: int, gain: float) -> nn.Parameter:
    return nn.Parameter(nn.init.orthogonal_(torch.empty(width, width), gain))
