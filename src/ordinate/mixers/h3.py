"""Hungry Hungry Hippos (H3): a shift SSM and a diagonal SSM with multiplicative gates."""

import math
from dataclasses import dataclass
from functools import reduce

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from ordinate.core.checks import need, need_positive, need_positive_counts, need_whole
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32, without_autocast
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._ssm_kernel import INITIAL_STEPS, DiagonalFilter
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.schemes._scheme import Placed

Columns = Float[Tensor, "b width n"]
LastKeys = Float[Tensor, "b width reach"]


@dataclass(frozen=True, eq=False)
class H3State(MixerState):
    """State of one layer.

    Args:
        k: the last keys, as many as the shift SSM looks back.
        x: states of the diagonal SSM for key times value, for each pair of channels of a head.
    """

    k: LastKeys
    x: Float[Tensor, "b h pairs s"]


class ShiftSSM(nn.Module):
    """Shift SSM of H3: a short learned convolution of each channel (FIR filter).

        y_t = sum over l < taps of past[l] u_(t-l) + skip u_t,   and in the bidirectional form
        y_t = ... + sum over l < taps of future[l] u_(t+1+l)

    Args:
        width: channels.
        taps: length of the filter [tokens].
        mirrored: whether the bidirectional form uses the same filter for past and future.
    """

    def __init__(self, width: int, taps: int, mirrored: bool) -> None:
        super().__init__()
        need_whole("taps", taps)
        need_positive("taps", taps)
        self.taps = nn.Parameter(torch.empty(1 if mirrored else 2, width, taps).uniform_(-1, 1) / math.sqrt(taps))
        self.skip = nn.Parameter(torch.randn(width))

    def forward(self, u: Columns, hides_future: bool, before: LastKeys | None = None) -> tuple[Columns, LastKeys]:
        """Filtered channels, and the last inputs, which the next call needs."""
        taps, reach = self.taps.to(u.dtype), self.taps.shape[2] - 1
        before = u.new_zeros(*u.shape[:2], reach) if before is None else before
        if not u.shape[2]:
            return u, before
        u = torch.cat([before, u], 2)
        past = pad(self.skip.to(u.dtype)[:, None], (reach, 0)) + taps[0].flip(1)
        # a copy: a view would keep the whole input alive in the state
        newest = u[..., u.shape[2] - reach :].clone()
        if hides_future:
            return conv1d(u, past[:, None], groups=len(past)), newest
        both = torch.cat([past, taps[-1]], 1)
        return conv1d(pad(u, (0, reach + 1)), both[:, None], groups=len(both)), newest


class H3(SequenceMixer[H3State]):
    """Hungry Hungry Hippos (H3): two SSMs with multiplicative gates, in the form of linear attention.

        y = W_O (q * filter(shift(k) * v)),   [q, k, v] = W x + bias

    The shift SSM delays keys, so that the product can associate the key of one token with the value of the next. With
    several channels in a head, each channel of shift(k) is multiplied with each of v, and the product with q is
    summed over the channels of shift(k).

    Args:
        width: columns of the model.
        head_dim: channels of a head; each head has one SSM, and a state for each pair of its channels.
        states: real size of each SSM state, N, and length of the shift [tokens].
        steps: smallest and largest initial step size of the SSMs [1 / token].
        mirrored: whether the bidirectional form uses the same SSMs for past and future; otherwise it has others for
            the future.
    Raises:
        ValueError: sizes that do not fit; a causal geometry with `mirrored=False`.
    Source: Fu et al. 2023, H3, https://arxiv.org/abs/2212.14052, section 3 and algorithm 1; the diagonal filters are
        S4D-Lin by the bilinear rule, as in the authors' code.
    Departs: the shift is learned as one coefficient for each tap, the product of the paper's B and C, where B is
        initialised as the first unit vector. The bidirectional form is ours. The output channels of a head are
        contiguous, as its input channels are.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(
        self,
        *,
        width: int,
        head_dim: int = 1,
        states: int = 64,
        steps: tuple[float, float] = INITIAL_STEPS,
        mirrored: bool = True,
    ) -> None:
        super().__init__()
        need_positive_counts(width=width, head_dim=head_dim, states=states)
        need(
            width % head_dim == 0, "head_dim must divide width", f"got {head_dim} and {width}", "choose one that does"
        )
        self.head_dim = head_dim
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.shift = ShiftSSM(width, states, mirrored)
        self.filter = DiagonalFilter(width // head_dim, states, steps, mirrored, rule="bilinear")

    def check_geometry(self, where: Geometry) -> None:
        """Raise unless the mixer and its filter support this geometry."""
        super().check_geometry(where)
        self.filter.check_where(where)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: H3State | None
    ) -> tuple[Tokens, H3State | None]:
        """Project, apply both SSMs with their gates, project back."""
        hides_future = at.where.is_causal
        projected = _columns(self.project, x)
        if real is not None:
            # the bias makes padding non-zero, which would enter the state
            projected = projected.masked_fill(~real[:, None], 0)
        with without_autocast(x):
            q, k, v = at_least_float32(projected).chunk(3, 1)
            k, newest = self.shift(k, hides_future, None if state is None else state.k)
            y, after = self._filter_pairs(q, k, v, hides_future, None if state is None else state.x)
        y = self.out(y.mT.to(x.dtype))
        return y, None if after is None else H3State(newest, after)

    def _filter_pairs(
        self, q: Columns, k: Columns, v: Columns, hides_future: bool, x: Float[Tensor, "b h pairs s"] | None
    ) -> tuple[Columns, Float[Tensor, "b h pairs s"] | None]:
        d = self.head_dim
        q, k, v = (rearrange(part, "b (h d) n -> h b d n", d=d) for part in (q, k, v))
        pairs = (k[:, :, :, None] * v[:, :, None]).flatten(1, 3)
        before = None if x is None else rearrange(x, "b h pairs s -> h (b pairs) s")
        y, after = self.filter(pairs, hides_future, before)
        y = y.unflatten(1, (-1, d, d))
        y = reduce(torch.add, (q[:, :, one, None] * y[:, :, one] for one in range(d)))
        memory = None if after is None else rearrange(after, "h (b pairs) s -> b h pairs s", pairs=d * d)
        return rearrange(y, "h b d n -> b (h d) n"), memory


def _columns(layer: nn.Module, x: Tokens) -> Float[Tensor, "b outputs n"]:
    """Output of a linear layer with time as the last axis, along which the filters run."""
    weight, bias = weight_and_bias(layer)
    made = weight.new_zeros(1) if bias is None else bias[None, :, None]
    return torch.baddbmm(made, weight.expand(len(x), -1, -1), x.mT)
