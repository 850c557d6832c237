"""Options of Mamba-2 in which published models differ."""

import math
from dataclasses import dataclass

from ordinate.core.checks import need, need_fraction, need_known, need_positive, need_whole
from ordinate.core.option_values import normalise_fields
from ordinate.mixers._short_convolution import ShortConvolution
from ordinate.ops.activation import ACTIVATIONS, Activation

NORM_EPS = 1e-5
"""Default epsilon of the norm."""
NO_SCALES = (1.0,) * 5
"""Factors that change nothing."""


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
        norm: whether the channels are normalised before the output projection.
        norm_before_gate: whether they are normalised before they are multiplied by the gate, not after it.
        scales: factors of z, x', B', C' and s as they are projected (Falcon-H1).
        out_scale: factor of the output.

    Raises:
        ValueError: an epsilon outside of 0 to 1, limits that are negative, infinite or not in order, an unknown
            activation, a number of channels that is not above zero, other than five factors, a factor that is not
            finite, or an option of the norm without it.
    """

    bias: bool = False
    convolution_bias: bool = True
    norm_eps: float = NORM_EPS
    least_step: float = 0.0
    largest_step: float | None = None
    activation: Activation = "silu"
    inner: int | None = None
    norm: bool = True
    norm_before_gate: bool = False
    scales: tuple[float, ...] = NO_SCALES
    out_scale: float = 1.0

    def __post_init__(self) -> None:
        normalise_fields(self)
        need_fraction("norm_eps", self.norm_eps)
        need_known("activation", self.activation, ACTIVATIONS)
        if self.inner is not None:
            need_whole("inner", self.inner)
            need_positive("inner", self.inner)
        must = "norm_before_gate and norm_eps have an effect only with norm"
        came = f"got norm_before_gate={self.norm_before_gate} and norm_eps={self.norm_eps} with norm=False"
        inert = self.norm_before_gate or self.norm_eps != NORM_EPS
        need(self.norm or not inert, must, came, "leave them out, or give norm=True")
        must, came = "scales must be five finite numbers, and out_scale one", f"got {self.scales}, {self.out_scale}"
        finite = all(map(math.isfinite, (*self.scales, self.out_scale)))
        need(len(self.scales) == len(NO_SCALES) and finite, must, came, "leave them out, for 1")
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
