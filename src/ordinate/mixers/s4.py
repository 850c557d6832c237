"""Structured state spaces."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ordinate.linear_filter import STEPS, LinearFilter
from ordinate.ops.hippo import legs
from ordinate.ops.low_rank import LowRank
from ordinate.ops.state_space import Memories, Signals, StateSpace, as_complex, as_real, in_type
from ordinate.state_space_mixer import StateSpaceMixer


class LowRankFilter(LinearFilter):
    """A filter whose memory follows a diagonal matrix minus one of rank one, the same for all channels.

    At birth it is HiPPO-LegS.

    Args:
        channels, states, steps, mirrored: as every filter's.
    """

    def __init__(self, channels: int, states: int, steps: Sequence[float], mirrored: bool) -> None:
        super().__init__(channels, states, steps, mirrored)
        a, p, b = legs(states)
        pairs = (torch.view_as_real(part) for part in (p, b))
        parts = ((-a.real).log(), a.imag, *pairs)
        self.log_decay, self.turn, self.p, self.b = (
            nn.Parameter(part.to(torch.get_default_dtype())) for part in parts
        )

    def space(self, tokens: int, future: bool, type: torch.dtype) -> StateSpace:
        """The filter of the past or of the future for chunks of so many tokens."""
        return self._low_rank(future, type).dense(tokens)

    def forward(self, u: Signals, hides_future: bool, x: Memories | None = None) -> tuple[Signals, Memories | None]:
        """What comes out for each token; a single one needs no matrix."""
        if u.shape[2] != 1 or not hides_future:
            return super().forward(u, hides_future, x)
        filter, new = self._low_rank(False, u.dtype), u[..., 0]
        x = u.new_zeros(*u.shape[:2], 2 * len(self.turn)) if x is None else x
        after = filter.step_on(as_complex(x), new)
        return filter.read(after, new)[..., None], as_real(after)

    def _low_rank(self, future: bool, type: torch.dtype) -> LowRank:
        def number(pair: Tensor) -> Tensor:
            return torch.view_as_complex(pair.to(type).contiguous())[None]

        a = torch.complex(-self.log_decay.to(type).exp(), self.turn.to(type))[None]
        c, skip = in_type(self._c(future), type), self._skip(future).to(type)
        return LowRank(a, number(self.p), number(self.b), c, skip, self._step().to(type))


class S4(StateSpaceMixer):
    """Each channel is heard through a filter whose memory is made to sum up all of the past: HiPPO, then learned.

        dx/dt = (diag(a) - p p*) x + b u,   y = 2 Re(c . x) + skip u,   read once each step by the bilinear rule
        out = glu(W gelu(y) + bias)

    Args:
        width: columns of the model.
        states: numbers that each channel remembers, N.
        steps: the least and the greatest step at birth [1 / token].
        mirrored: in texts read in both directions, whether the future is heard by the filter of the past; otherwise
            it has one of its own.
        dropout: share of the filtered numbers dropped in training.
    Raises:
        ValueError: sizes that do not fit; a future that is hidden, with `mirrored=False`.
    Source: Gu, Goel and Ré 2022, S4, https://arxiv.org/abs/2111.00396, section 3 and appendix C; p p* in place of
        p q* from Goel et al. 2022, https://arxiv.org/abs/2202.09729.
    Departs: chunks of tokens are read by powers of the matrix, found by squaring, and joined by the memory. The paper
        finds a kernel as long as the text from its generating function, and transforms it. The numbers are the same.
        One matrix for all channels, as in the authors' settings. The paper's `mirrored` is always False.
    """

    def __init__(
        self,
        *,
        width: int,
        states: int = 64,
        steps: tuple[float, float] = STEPS,
        mirrored: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, LowRankFilter(width, states, steps, mirrored), dropout)
