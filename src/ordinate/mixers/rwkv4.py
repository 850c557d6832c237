"""RWKV-4: a weighted mean of the past, in which each channel forgets at a pace of its own."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.checks import need_positive
from ordinate.mixer import State
from ordinate.native.wkv import Sums
from ordinate.ops.shift import both_ways, depth, shifted, wide
from ordinate.ops.wkv import WEIGHTLESS, empty_sums, wkv
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens


@dataclass(frozen=True, eq=False)
class Rwkv4State(State):
    """What RWKV-4 remembers: the same few numbers however long the text was.

    Args:
        last: the newest token.
        sums: numerator and denominator of the mean, and their common exponent.
    """

    last: Float[Tensor, "b width"]
    sums: Sums


class Rwkv4(SequenceMixer[Rwkv4State]):
    """Each channel takes a mean of its past values, weighted by e^key; the weights decay at a pace that is learned.

        x'_t = x_{t-1};   k = W_k (m_k x + (1 - m_k) x'),  v and r alike
        y_t = (sum_{i<t} e^{(t-1-i) w + k_i} v_i + e^{u + k_t} v_t) / (the same with v = 1),   w = -e^decay
        out = W_o (sigmoid(r) y)

    Args:
        width: columns of the model.
        layers: layers of the model; numbers at birth depend on it.
        layer: which of them this is, from 0.
    Source: Peng et al. 2023, equations 11 to 18 and appendix D, https://arxiv.org/abs/2305.13048; numbers at birth
        from https://github.com/BlinkDL/RWKV-LM, RWKV-v4.
    Departs: it is the time mixing alone: the model's feed-forward stands in for channel mixing, and its norms and
        token table for those of the paper. Where nothing hides the future (our extension), the text is read from both
        sides with the same weights and the two results are added. A model of one layer, at which the numbers at birth
        divide by zero, counts as the first of many.
    """

    honours = frozenset()
    equivariant = False
    usual_scheme = "none"

    def __init__(self, *, width: int, layers: int = 1, layer: int = 0) -> None:
        super().__init__()
        need_positive("width", width)
        late, early = depth(layer, layers)
        place = torch.arange(width)
        pace = -5 + 8 * (place / max(1, width - 1)) ** (0.7 + 1.3 * late)
        self.decay = nn.Parameter(pace)
        self.bonus = nn.Parameter(torch.full((width,), 0.3).log() + 0.5 * ((place + 1) % 3 - 1))
        share = (place / width) ** early
        self.key_share = nn.Parameter(share)
        self.value_share = nn.Parameter(share + 0.3 * late)
        self.gate_share = nn.Parameter(share**0.5)
        # not in linear layers: those would be drawn anew by a model
        self.key, self.gate, self.out = (nn.Parameter(torch.zeros(width, width)) for _ in range(3))
        self.value = nn.Parameter(nn.init.orthogonal_(torch.empty(width, width)))

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Rwkv4State | None
    ) -> tuple[Tokens, Rwkv4State | None]:
        """Read from left to right, or from both sides."""
        if at.where.hides_future:
            return self._read(x, real, state)
        return both_ways(lambda x: self._read(x, real, None)[0], x, real), None

    def _read(
        self, x: Tokens, real: Bool[Tensor, "b n"] | None, state: Rwkv4State | None
    ) -> tuple[Tokens, Rwkv4State]:
        before, last = shifted(x, None if state is None else state.last)
        change = x - before
        r = linear(torch.addcmul(before, change, self.gate_share), self.gate)
        k = wide(linear(torch.addcmul(before, change, self.key_share), self.key))
        v = wide(linear(torch.addcmul(before, change, self.value_share), self.value))
        if real is not None:
            k = k.masked_fill(~real[..., None], WEIGHTLESS)
        sums = empty_sums(k) if state is None else state.sums
        mean, sums = wkv(k, v, -torch.exp(wide(self.decay)), wide(self.bonus), sums)
        y = linear(torch.sigmoid(r) * mean.to(r.dtype), self.out)
        return y.to(x.dtype), Rwkv4State(last, sums)
