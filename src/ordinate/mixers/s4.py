"""S4: structured state space model with a diagonal plus low-rank state matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ordinate.core.tensors import on_device
from ordinate.mixers._ssm_kernel import INITIAL_STEPS, LinearFilter
from ordinate.mixers._state_space import StateSpaceMixer
from ordinate.ops.hippo import hippo_legs
from ordinate.ops.low_rank import DiagonalPlusLowRank, read_low_rank
from ordinate.ops.state_space import Signals, States, as_complex, as_real, to_real_dtype


class LowRankFilter(LinearFilter):
    """State space filter with a diagonal minus rank-one state matrix, shared by all channels; initially HiPPO-LegS.

    Args:
        channels, states, steps, mirrored: as in `LinearFilter`.
    """

    def __init__(self, channels: int, states: int, steps: Sequence[float], mirrored: bool) -> None:
        super().__init__(channels, states, steps, mirrored)
        a, p, b = hippo_legs(states)
        pairs = (torch.view_as_real(part) for part in (p, b))
        parts = ((-a.real).log(), a.imag, *pairs)
        self.log_decay, self.turn, self.p, self.b = (
            nn.Parameter(part.to(torch.get_default_dtype())) for part in parts
        )

    def read(self, u: Signals, x: States, future: bool) -> tuple[Signals, States]:
        """Read the signals by the state space matrices of the past or of the future."""
        filter = self._low_rank(future, u.dtype)
        return read_low_rank(u, x, filter.a, filter.p, filter.b, filter.c, filter.skip, filter.step)

    def forward(self, u: Signals, hides_future: bool, x: States | None = None) -> tuple[Signals, States | None]:
        """Filter the channels; a single token is computed without building the matrix."""
        if u.shape[2] != 1 or not hides_future:
            return super().forward(u, hides_future, x)
        filter, new = self._low_rank(False, u.dtype), u[..., 0]
        x = u.new_zeros(*u.shape[:2], 2 * len(self.turn)) if x is None else x
        after = filter.step_on(as_complex(x), new)
        return filter.read(after, new)[..., None], as_real(after)

    def _low_rank(self, future: bool, type: torch.dtype) -> DiagonalPlusLowRank:
        def number(pair: Tensor) -> Tensor:
            return torch.view_as_complex(pair.to(type).contiguous())[None]

        a = torch.complex(-self.log_decay.to(type).exp(), self.turn.to(type))[None]
        c, skip = to_real_dtype(self._c(future), type, self.skip.device), self._skip(future).to(type)
        step = on_device(self._step(), type, self.skip.device)
        return DiagonalPlusLowRank(a, number(self.p), number(self.b), c, skip, step)


class S4(StateSpaceMixer):
    """Structured state space model (S4): a learned SSM per channel, initialised with HiPPO-LegS.

        dx/dt = (diag(a) - p p*) x + b u,   y = 2 Re(c . x) + skip u,   discretised by the bilinear rule
        out = glu(W gelu(y) + bias)

    Args:
        width: columns of the model.
        states: real size of the state of each channel, N.
        steps: smallest and largest initial step size [1 / token].
        mirrored: whether the bidirectional form uses the same filter for past and future; otherwise the future has
            a filter of its own.
        dropout: dropout probability of the filtered channels.
    Raises:
        ValueError: sizes that do not fit; a causal geometry with `mirrored=False`.
    Source: Gu, Goel and Ré 2022, S4, https://arxiv.org/abs/2111.00396, section 3 and appendix C; p p* in place of
        p q* from Goel et al. 2022, https://arxiv.org/abs/2202.09729.
    Departs: computed in chunks, by powers of the discretised matrix (found by squaring), with the state carried
        between chunks. The paper computes a convolution kernel of full length from its generating function, and
        applies it by FFT. Both are equal in exact arithmetic. One state matrix for all channels, as in the authors'
        settings. In the paper `mirrored` is always False.
    """

    def __init__(
        self,
        *,
        width: int,
        states: int = 64,
        steps: tuple[float, float] = INITIAL_STEPS,
        mirrored: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, LowRankFilter(width, states, steps, mirrored), dropout)
