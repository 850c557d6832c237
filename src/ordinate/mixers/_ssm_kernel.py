"""Learnable linear filters, the recurrent part of state space models (S4, S4D, H3)."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive_counts, need_whole
from ordinate.core.geometry import Geometry
from ordinate.core.tensors import in_float64
from ordinate.ops.diagonal import Discretisation, discretise, read_diagonal
from ordinate.ops.hippo import Initialisation, initial_diagonal
from ordinate.ops.state_space import Signals, States, read_reversed

INITIAL_STEPS = (0.001, 0.1)
"""Default range of the initial step sizes."""


class LinearFilter(nn.Module):
    """A single-input single-output state space model for each channel.

        y_t = sum over s <= t of past[t-s] u_s + skip u_t,   and if bidirectional
        y_t = ... + sum over s > t of future[s-t-1] u_s

    Args:
        channels: number of signals, each with its own filter.
        states: state size N of each filter, as N/2 complex modes.
        steps: smallest and largest initial step size, drawn log-uniformly [1 / token].
        mirrored: whether the future is filtered with the parameters of the past; otherwise it has its own.

    Raises:
        ValueError: invalid sizes; steps that are not two positive numbers in ascending order.
    """

    def __init__(self, channels: int, states: int, steps: Sequence[float], mirrored: bool) -> None:
        super().__init__()
        need_positive_counts(width=channels)
        need_whole("states", states)
        need(states > 0 and states % 2 == 0, "states must be even and positive", f"got {states}", "give 64")
        ordered = len(steps) == 2 and 0 < steps[0] <= steps[1]
        need(
            ordered,
            "steps must be two positive numbers in ascending order",
            f"got {list(steps)}",
            "give 0.001 and 0.1",
        )
        self.mirrored = mirrored
        self.log_step = nn.Parameter(torch.empty(channels).uniform_(math.log(steps[0]), math.log(steps[1])))
        # output vectors: of the past, then of the future
        self.c = nn.Parameter(torch.randn(1 if mirrored else 2, channels, states // 2, 2) / math.sqrt(2))
        self.skip = nn.Parameter(torch.randn(channels))

    @abstractmethod
    def read(self, u: Signals, x: States, future: bool) -> tuple[Signals, States]:
        """Return the output at each token, and the final state, of the filter of the past or of the future.

        Args:
            u: input signals; rows are independent.
            x: initial state.
            future: whether the filter is that of the future.
        """

    def check_where(self, where: Geometry) -> None:
        """Raise if the geometry is causal although the filter has parameters for the future."""
        need(
            self.mirrored or not where.is_causal,
            "mirrored=False requires a bidirectional geometry",
            "got a causal one",
            "leave mirrored out, or build the geometry with causal=False",
        )

    def forward(self, u: Signals, hides_future: bool, x: States | None = None) -> tuple[Signals, States | None]:
        """Return the output at each token and, if causal, the final state."""
        none = u.new_zeros(*u.shape[:2], 2 * self.c.shape[2])
        y, x = self.read(u, none if x is None else x, False)
        if hides_future:
            return y, x
        return y + read_reversed(lambda u: self.read(u, none, True)[0], u), None

    def _step(self) -> Float[Tensor, "h 1"]:
        return in_float64(self.log_step).exp()[:, None]

    def _c(self, future: bool) -> Complex[Tensor, "h m"]:
        return torch.view_as_complex(in_float64(self.c[-1 if future else 0]).contiguous())

    def _skip(self, future: bool) -> Float[Tensor, "h"]:
        return torch.zeros_like(self.skip) if future else self.skip


class DiagonalFilter(LinearFilter):
    """Linear filter with a diagonal state matrix of N/2 complex modes (S4D).

        x_t = exp(step a) x_(t-1) + gain u_t,   y_t = 2 Re(c . x_t) + skip u_t

    Args:
        channels, states, steps, mirrored: as in `LinearFilter`.
        init: initialisation of the state matrix a.
        rule: discretisation.
    """

    def __init__(
        self,
        channels: int,
        states: int,
        steps: Sequence[float],
        mirrored: bool,
        init: Initialisation = "lin",
        rule: Discretisation = "zoh",
    ) -> None:
        super().__init__(channels, states, steps, mirrored)
        self.rule: Discretisation = rule
        a, b = initial_diagonal(states, init)
        self.log_decay = nn.Parameter((-a.real).log().to(torch.get_default_dtype()).repeat(channels, 1))
        self.turn = nn.Parameter(a.imag.to(torch.get_default_dtype()).repeat(channels, 1))
        with torch.no_grad():
            self.c.copy_(torch.view_as_real(b * torch.view_as_complex(self.c)))

    def read(self, u: Signals, x: States, future: bool) -> tuple[Signals, States]:
        """Read the signals by the discretised state space of the past or of the future."""
        a = torch.complex(-in_float64(self.log_decay).exp(), in_float64(self.turn))
        factor, gain = discretise(a, self._step(), self.rule)
        return read_diagonal(u, x, factor, self._c(future) * gain, self._skip(future))
