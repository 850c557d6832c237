"""S4D: diagonal state space model."""

from ordinate.mixers._ssm_kernel import INITIAL_STEPS, DiagonalFilter
from ordinate.mixers._state_space import StateSpaceMixer
from ordinate.ops.diagonal import Discretisation
from ordinate.ops.hippo import Initialisation


class S4d(StateSpaceMixer):
    """Diagonal state space model (S4D): per channel, a learned sum of damped oscillations as convolution kernel.

        x_t = exp(step a) x_(t-1) + gain u_t,   y_t = 2 Re(c . x_t) + skip u_t,   for each channel u
        out = glu(W gelu(y) + bias)

    Args:
        width: columns of the model.
        states: real size of the state of each channel, N: half as many complex modes.
        init: initial rates a: `lin`, `inv`, `legs` or `real` (`ordinate.ops.hippo.start` has the formulas).
        rule: discretisation: `zoh` (zero-order hold) or `bilinear`.
        steps: smallest and largest initial step size [1 / token].
        mirrored: whether the bidirectional form uses the same filter for past and future; otherwise the future has
            a filter of its own.
        dropout: dropout probability of the filtered channels.
    Raises:
        ValueError: sizes that do not fit; a causal geometry with `mirrored=False`.
    Source: Gu et al. 2022, S4D, https://arxiv.org/abs/2206.11893, section 3 and table 1.
    Departs: computed in chunks with the state carried between them, instead of by FFT: exact, faster, and linear in
        the sequence length. B is learned as a part of C. In the paper `mirrored` is always False.
    """

    def __init__(
        self,
        *,
        width: int,
        states: int = 64,
        init: Initialisation = "lin",
        rule: Discretisation = "zoh",
        steps: tuple[float, float] = INITIAL_STEPS,
        mirrored: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, DiagonalFilter(width, states, steps, mirrored, init, rule), dropout)
