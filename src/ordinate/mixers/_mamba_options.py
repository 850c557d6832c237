"""Options of Mamba in which published models differ."""

from dataclasses import dataclass
from typing import Literal

from ordinate.core.checks import need, need_fraction, need_known, need_positive_counts
from ordinate.core.option_values import normalise_fields
from ordinate.mixers._short_convolution import ShortConvolution
from ordinate.ops.activation import ACTIVATIONS, Activation

SelectionNorm = Literal["none", "plain", "scaled"]
"""How step sizes, B and C are normalised: not at all, by their root mean squares, or with a learned scale too."""
EPSILON = 1e-6
"""Epsilon of these norms, unless another one is given."""


@dataclass(frozen=True)
class MambaOptions:
    """Options of Mamba in which published models differ.

    Args:
        bias: whether the projections of the input and of the output have biases.
        convolution_bias: whether the short convolution has one.
        activation: function behind the short convolution; that of the gate is SiLU.
        norm: RMS norms of s, B and C, each on its own: `none`; `plain`, without weights (Falcon-Mamba); or `scaled`,
            with a scale of each number (Jamba).
        norm_eps: epsilon of these norms; None: 1e-6.
        inner: channels, where they are no multiple of the columns of the model; None: `expand` times as many.

    Raises:
        ValueError: an unknown activation or norm, an epsilon outside of 0 to 1, or one without norms, or a number of
            channels that is not above zero.
    """

    bias: bool = False
    convolution_bias: bool = True
    activation: Activation = "silu"
    norm: SelectionNorm = "none"
    norm_eps: float | None = None
    inner: int | None = None

    def __post_init__(self) -> None:
        normalise_fields(self)
        need_known("activation", self.activation, ACTIVATIONS)
        need_known("norm", self.norm, ("none", "plain", "scaled"))
        if self.inner is not None:
            need_positive_counts(inner=self.inner)
        if self.norm_eps is not None:
            need_fraction("norm_eps", self.norm_eps)
            must = "norm_eps has no effect without norms"
            need(self.norm != "none", must, f"got {self.norm_eps}", "leave it out, or give norm=plain or scaled")

    def make_convolution(self, channels: int, taps: int) -> ShortConvolution:
        """Build the short convolution of this many channels over this many tokens."""
        activation = ACTIVATIONS[self.activation]
        return ShortConvolution(channels, taps, bias=self.convolution_bias, activation=activation)

    @property
    def epsilon(self) -> float:
        """Epsilon of the norms."""
        return EPSILON if self.norm_eps is None else self.norm_eps
