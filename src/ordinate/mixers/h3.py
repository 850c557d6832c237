"""Two state spaces between gates."""

import math
from dataclasses import dataclass
from functools import reduce

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

from ordinate.checks import need, need_positive, need_whole
from ordinate.geometry import Geometry
from ordinate.linear_filter import STEPS, DiagonalFilter
from ordinate.mixer import State
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens
from ordinate.tensors import at_least_float32

Columns = Float[Tensor, "b width n"]
Newest = Float[Tensor, "b width reach"]


@dataclass(frozen=True, eq=False)
class Remembered(State):
    """What one layer remembers.

    Args:
        k: the newest keys, as many as the shift reaches back.
        x: what the filters remember of key times value, for each pair of channels of a head.
    """

    k: Newest
    x: Float[Tensor, "b h pairs s"]


class Shift(nn.Module):
    """A filter that hears each of the last few tokens by a number of its own, in each channel.

        y_t = sum over l < taps of past[l] u_(t-l) + skip u_t,   and where tokens see those after them
        y_t = ... + sum over l < taps of future[l] u_(t+1+l)

    Args:
        width: channels.
        taps: how many tokens are heard.
        mirrored: whether the future is heard as the past is.
    """

    def __init__(self, width: int, taps: int, mirrored: bool) -> None:
        super().__init__()
        need_whole("taps", taps)
        need_positive("taps", taps)
        self.taps = nn.Parameter(torch.empty(1 if mirrored else 2, width, taps).uniform_(-1, 1) / math.sqrt(taps))
        self.skip = nn.Parameter(torch.randn(width))

    def forward(self, u: Columns, hides_future: bool, before: Newest | None = None) -> tuple[Columns, Newest]:
        """What comes out, and the inputs that the next call needs."""
        taps, reach = self.taps.to(u.dtype), self.taps.shape[2] - 1
        before = u.new_zeros(*u.shape[:2], reach) if before is None else before
        if not u.shape[2]:
            return u, before
        u = torch.cat([before, u], 2)
        past = pad(self.skip.to(u.dtype)[:, None], (reach, 0)) + taps[0].flip(1)
        # a copy: a part of it would keep all of it alive
        newest = u[..., u.shape[2] - reach :].clone()
        if hides_future:
            return conv1d(u, past[:, None], groups=len(past)), newest
        both = torch.cat([past, taps[-1]], 1)
        return conv1d(pad(u, (0, reach + 1)), both[:, None], groups=len(both)), newest


class H3(SequenceMixer[Remembered]):
    """Like attention, built of filters: keys are held back, meet values, are remembered, and asked for.

        y = W_O (q * filter(shift(k) * v)),   [q, k, v] = W x + bias

    So the memory can hold "after this comes that": a key of one token beside the value of the next. With heads of
    several channels, each channel of shift(k) meets each of v, and a head's query sums over the first.

    Args:
        width: columns of the model.
        head_dim: channels of a head; each head has one filter, and a memory for each pair of its channels.
        states: numbers that each memory keeps, N, and tokens that the shift hears.
        steps: the least and the greatest step of the filters at birth [1 / token].
        mirrored: in texts read in both directions, whether the future is heard by the filters of the past; otherwise
            it has some of its own.
    Raises:
        ValueError: sizes that do not fit; a future that is hidden, with `mirrored=False`.
    Source: Fu et al. 2023, H3, https://arxiv.org/abs/2212.14052, section 3 and algorithm 1; the diagonal filters are
        S4D-Lin by the bilinear rule, as in the authors' code.
    Departs: the shift is learned as one number for each tap, the product of the paper's B and C, where B is born as
        the first unit vector. Reading in both directions is ours. A head's results stand together, as its inputs do.
    """

    honours = frozenset()
    equivariant = False
    usual_scheme = "none"

    def __init__(
        self,
        *,
        width: int,
        head_dim: int = 1,
        states: int = 64,
        steps: tuple[float, float] = STEPS,
        mirrored: bool = True,
    ) -> None:
        super().__init__()
        for name, size in (("width", width), ("head_dim", head_dim)):
            need_whole(name, size)
            need_positive(name, size)
        need(
            width % head_dim == 0, "head_dim must divide width", f"got {head_dim} and {width}", "choose one that does"
        )
        self.head_dim = head_dim
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.shift = Shift(width, states, mirrored)
        self.filter = DiagonalFilter(width // head_dim, states, steps, mirrored, rule="bilinear")

    def check_where(self, where: Geometry) -> None:
        """Raise unless it has a form for this geometry."""
        super().check_where(where)
        self.filter.check_where(where)

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Remembered | None
    ) -> tuple[Tokens, Remembered | None]:
        """Project, let keys and values meet, remember, ask."""
        hides_future = at.where.hides_future
        projected = _columns(self.project, x)
        if real is not None:
            # biases make something of padding; nothing may be remembered of it
            projected = projected.masked_fill(~real[:, None], 0)
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = at_least_float32(projected).chunk(3, 1)
            k, newest = self.shift(k, hides_future, None if state is None else state.k)
            y, memory = self._remember(q, k, v, hides_future, None if state is None else state.x)
        y = self.out(y.mT.to(x.dtype))
        return y, None if memory is None else Remembered(newest, memory)

    def _remember(
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


def _columns(layer: nn.Linear, x: Tokens) -> Float[Tensor, "b outputs n"]:
    """What a linear layer gives, with time as the last axis: filters run along it."""
    return torch.baddbmm(layer.bias[None, :, None], layer.weight.expand(len(x), -1, -1), x.mT)
