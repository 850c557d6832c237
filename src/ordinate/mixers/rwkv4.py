"""RWKV-4 time mixing: an exponentially decaying weighted mean per channel (WKV)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.core.checks import need_positive
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.decay import decay_rate
from ordinate.ops.native.wkv import Sums
from ordinate.ops.shift import bidirectional, relative_depth, to_float32, token_shift
from ordinate.ops.wkv import PADDING_KEY, empty_sums, wkv
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class Rwkv4State(MixerState):
    """Recurrent state of RWKV-4, of constant size.

    Args:
        last: the last token, for the token shift.
        sums: numerator and denominator of the mean, and their shared exponent.
    """

    last: Float[Tensor, "b width"]
    sums: Sums


class Rwkv4(SequenceMixer[Rwkv4State]):
    """RWKV-4 time mixing: per channel, a mean of past values weighted by e^key with a learned exponential decay.

        x'_t = x_{t-1};   k = W_k (m_k x + (1 - m_k) x'),  v and r alike
        y_t = (sum_{i<t} e^{(t-1-i) w + k_i} v_i + e^{u + k_t} v_t) / (the same with v = 1),   w = -e^decay
        out = W_o (sigmoid(r) y)

    Args:
        width: columns of the model.
        layers: number of layers of the model; the initialisation depends on it.
        layer: index of this layer, from 0.
    Source: Peng et al. 2023, equations 11 to 18 and appendix D, https://arxiv.org/abs/2305.13048; initialisation
        from https://github.com/BlinkDL/RWKV-LM, RWKV-v4.
    Departs: time mixing only: the model's feed-forward replaces channel mixing, and its norms and token embeddings
        those of the paper. The bidirectional form (our extension) runs in both directions with the same weights and
        adds the two results. In a model of one layer, for which the initialisation would divide by zero, the layer is
        initialised as the first of many.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, *, width: int, layers: int = 1, layer: int = 0) -> None:
        super().__init__()
        need_positive("width", width)
        late, early = relative_depth(layer, layers)
        place = torch.arange(width)
        pace = -5 + 8 * (place / max(1, width - 1)) ** (0.7 + 1.3 * late)
        self.decay = nn.Parameter(pace)
        self.bonus = nn.Parameter(torch.full((width,), 0.3).log() + 0.5 * ((place + 1) % 3 - 1))
        share = (place / width) ** early
        self.key_share = nn.Parameter(share)
        self.value_share = nn.Parameter(share + 0.3 * late)
        self.gate_share = nn.Parameter(share**0.5)
        # not nn.Linear, whose weights the model would reinitialise
        self.key, self.gate, self.out = (nn.Parameter(torch.zeros(width, width)) for _ in range(3))
        self.value = nn.Parameter(nn.init.orthogonal_(torch.empty(width, width)))

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Rwkv4State | None
    ) -> tuple[Tokens, Rwkv4State | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        if at.where.is_causal:
            return self._read(x, real, state)
        return bidirectional(lambda x: self._read(x, real, None)[0], x, real), None

    def _read(
        self, x: Tokens, real: Bool[Tensor, "b n"] | None, state: Rwkv4State | None
    ) -> tuple[Tokens, Rwkv4State]:
        before, last = token_shift(x, None if state is None else state.last)
        change = x - before
        r = linear(torch.addcmul(before, change, self.gate_share), self.gate)
        k = to_float32(linear(torch.addcmul(before, change, self.key_share), self.key))
        v = to_float32(linear(torch.addcmul(before, change, self.value_share), self.value))
        if real is not None:
            k = k.masked_fill(~real[..., None], PADDING_KEY)
        sums = empty_sums(k) if state is None else state.sums
        mean, sums = wkv(k, v, -decay_rate(to_float32(self.decay)), to_float32(self.bonus), sums)
        y = linear(torch.sigmoid(r) * mean.to(r.dtype), self.out)
        return y.to(x.dtype), Rwkv4State(last, sums)
