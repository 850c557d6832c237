"""Filters that learn: what state space models are made of."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from ordinate.checks import need, need_whole
from ordinate.geometry import Geometry
from ordinate.ops.diagonal import Discretisation, diagonal, discretise
from ordinate.ops.hippo import Start, start
from ordinate.ops.state_space import CHUNK, Memories, Signals, StateSpace

STEPS = (0.001, 0.1)
"""The least and the greatest step that is drawn at birth."""


class LinearFilter(nn.Module):
    """A filter for each channel, which remembers `states` numbers of what it has read.

        y_t = sum over s <= t of past[t-s] u_s + skip u_t,   and where tokens see those after them
        y_t = ... + sum over s > t of future[s-t-1] u_s

    Args:
        channels: how many signals are filtered, each by a filter of its own.
        states: numbers that each remembers, N; half of them complex ones.
        steps: the least and the greatest step at birth, drawn evenly in their logarithm [1 / token].
        mirrored: whether the future is heard as the past is; otherwise it has numbers of its own.

    Raises:
        ValueError: sizes that do not fit; steps that are not two positive numbers in order.
    """

    def __init__(self, channels: int, states: int, steps: Sequence[float], mirrored: bool) -> None:
        super().__init__()
        need_whole("states", states)
        need(states > 0 and states % 2 == 0, "states must be even and above zero", f"got {states}", "give 64")
        ordered = len(steps) == 2 and 0 < steps[0] <= steps[1]
        need(ordered, "steps are the least and the greatest, above zero", f"got {list(steps)}", "give 0.001 and 0.1")
        self.mirrored = mirrored
        self.log_step = nn.Parameter(torch.empty(channels).uniform_(math.log(steps[0]), math.log(steps[1])))
        # what is read of the memory: of the past, then of the future
        self.c = nn.Parameter(torch.randn(1 if mirrored else 2, channels, states // 2, 2) / math.sqrt(2))
        self.skip = nn.Parameter(torch.randn(channels))

    @abstractmethod
    def space(self, tokens: int, future: bool, type: torch.dtype) -> StateSpace:
        """The filter of the past or of the future for chunks of so many tokens."""

    def check_where(self, where: Geometry) -> None:
        """Raise if it has numbers for a future that is hidden."""
        need(
            self.mirrored or not where.hides_future,
            "mirrored=False serves tokens that see those after them",
            "got a geometry that hides the future",
            "leave it out, or build the geometry with causal=False",
        )

    def forward(self, u: Signals, hides_future: bool, x: Memories | None = None) -> tuple[Signals, Memories | None]:
        """What comes out for each token, and what is remembered, where the future is hidden."""
        tokens = max(1, min(u.shape[2], CHUNK))
        y, x = self.space(tokens, False, u.dtype).read(u, x)
        if hides_future:
            return y, x
        return y + self.space(tokens, True, u.dtype).read_back(u), None

    def _step(self) -> Float[Tensor, "h 1"]:
        return self.log_step.double().exp()[:, None]

    def _c(self, future: bool) -> Complex[Tensor, "h m"]:
        return torch.view_as_complex(self.c[-1 if future else 0].double().contiguous())

    def _skip(self, future: bool) -> Float[Tensor, "h"]:
        return torch.zeros_like(self.skip) if future else self.skip


class DiagonalFilter(LinearFilter):
    """A filter whose memory is N/2 complex numbers, each of which turns and fades at a rate of its own.

        x_t = exp(step a) x_(t-1) + gain u_t,   y_t = 2 Re(c . x_t) + skip u_t

    Args:
        channels, states, steps, mirrored: as every filter's.
        init: the rates a at birth.
        rule: how continuous time becomes tokens.
    """

    def __init__(
        self,
        channels: int,
        states: int,
        steps: Sequence[float],
        mirrored: bool,
        init: Start = "lin",
        rule: Discretisation = "zoh",
    ) -> None:
        super().__init__(channels, states, steps, mirrored)
        self.rule: Discretisation = rule
        a, b = start(states, init)
        self.log_decay = nn.Parameter((-a.real).log().to(torch.get_default_dtype()).repeat(channels, 1))
        self.turn = nn.Parameter(a.imag.to(torch.get_default_dtype()).repeat(channels, 1))
        with torch.no_grad():
            self.c.copy_(torch.view_as_real(b * torch.view_as_complex(self.c)))

    def space(self, tokens: int, future: bool, type: torch.dtype) -> StateSpace:
        """The filter of the past or of the future for chunks of so many tokens."""
        a = torch.complex(-self.log_decay.double().exp(), self.turn.double())
        factor, gain = discretise(a, self._step(), self.rule)
        return diagonal(factor, self._c(future) * gain, self._skip(future), tokens, type)
