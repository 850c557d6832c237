"""Options of Mamba-2 in which published models differ."""

import math
from dataclasses import dataclass

from ordinate.core.checks import need, need_fraction, need_known, need_positive, need_whole
from ordinate.core.option_values import normalise_fields
from ordinate.mixers._short_convolution import ShortConvolution
from ordinate.ops.activation import ACTIVATIONS, Activation


@dataclass(frozen=True)
class Mamba2Options:
    """Options of Mamba-2 in which published models differ.

    Args:
        bias: whether the projections of the input and of the output have biases.
        convolution_bias: whether the short convolution has one.
        norm_eps: epsilon of the norm.
        least_step: a smaller step size is raised to this.
        largest_step: a larger step size is lowered to this; None: no limit.
        activation: function behind the short convolution; that of the gate is SiLU.
        inner: channels of all heads together, where they are no multiple of the columns of the model; None: `expand`
            times as many.

    Raises:
        ValueError: an epsilon outside of 0 to 1, limits that are negative, infinite or not in order, an unknown
            activation, or a number of channels that is not above zero.
    """

    bias: bool = False
    convolution_bias: bool = True
    norm_eps: float = 1e-5
    least_step: float = 0.0
    largest_step: float | None = None
    activation: Activation = "silu"
    inner: int | None = None

    def __post_init__(self) -> None:
        normalise_fields(self)
        need_fraction("norm_eps", self.norm_eps)
        need_known("activation", self.activation, ACTIVATIONS)
        if self.inner is not None:
            need_whole("inner", self.inner)
            need_positive("inner", self.inner)
        least, largest = self.least_step, self.largest_step
        need(
            0 <= least < math.inf and (largest is None or least <= largest < math.inf),
            "step sizes need 0 <= least_step <= largest_step, both finite",
            f"got least_step={least} and largest_step={largest}",
            "correct them, or leave them out",
        )

    def make_convolution(self, channels: int, taps: int) -> ShortConvolution:
        """Build the short convolution of this many channels over this many tokens."""
        activation = ACTIVATIONS[self.activation]
        return ShortConvolution(channels, taps, bias=self.convolution_bias, activation=activation)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Smallest and largest step size; None: no limit."""
        return self.least_step or None, self.largest_step
