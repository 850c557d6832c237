"""Diagonal state spaces."""

from ordinate.linear_filter import STEPS, DiagonalFilter
from ordinate.ops.diagonal import Discretisation
from ordinate.ops.hippo import Start
from ordinate.state_space_mixer import StateSpaceMixer


class S4d(StateSpaceMixer):
    """Each channel is heard through a filter that remembers: a sum of waves that turn and fade, learned.

        x_t = exp(step a) x_(t-1) + gain u_t,   y_t = 2 Re(c . x_t) + skip u_t,   for each channel u
        out = glu(W gelu(y) + bias)

    Args:
        width: columns of the model.
        states: numbers that each channel remembers, N; half as many waves.
        init: the rates a at birth: `lin`, `inv`, `legs` or `real` (`ordinate.ops.hippo.start` has the formulas).
        rule: how continuous time becomes tokens: `zoh` holds each token for a step, `bilinear` draws lines.
        steps: the least and the greatest step at birth [1 / token].
        mirrored: in texts read in both directions, whether the future is heard by the filter of the past; otherwise
            it has one of its own.
        dropout: share of the filtered numbers dropped in training.
    Raises:
        ValueError: sizes that do not fit; a future that is hidden, with `mirrored=False`.
    Source: Gu et al. 2022, S4D, https://arxiv.org/abs/2206.11893, section 3 and table 1.
    Departs: the sum is computed by chunks of tokens and a memory between them, instead of a Fourier transform: exact,
        faster, and linear in the text's length. B is learned as a part of C. The paper's `mirrored` is always False.
    """

    def __init__(
        self,
        *,
        width: int,
        states: int = 64,
        init: Start = "lin",
        rule: Discretisation = "zoh",
        steps: tuple[float, float] = STEPS,
        mirrored: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, DiagonalFilter(width, states, steps, mirrored, init, rule), dropout)
