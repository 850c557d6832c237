"""The short convolution that recent recurrent layers apply to their projections."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.functional import silu

from ordinate.core.checks import need, need_known, need_positive, need_whole
from ordinate.core.shapes import Tokens
from ordinate.ops.activation import ACTIVATIONS, NOT_ZERO_AT_ZERO, Activation
from ordinate.ops.short_convolution import Recent, short_convolution


class ShortConvolution(nn.Module):
    """A causal convolution of each channel over the last few tokens, followed by an activation function.

        y_t = f(sum over l < taps of weight[taps - 1 - l] x_(t-l) + bias)

    The weights are initialised as those of `torch.nn.Conv1d`, uniformly within 1 / sqrt(taps).

    Args:
        channels: channels.
        taps: tokens that the filter spans, the current one included.
        bias: whether a bias is added.
        activation: f.
    """

    def __init__(
        self, channels: int, taps: int, *, bias: bool = False, activation: Callable[[Tensor], Tensor] = silu
    ) -> None:
        super().__init__()
        need_whole("taps", taps)
        need_positive("taps", taps)
        self.activation = activation
        bound = 1 / math.sqrt(taps)
        self.weight = nn.Parameter(torch.empty(channels, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tokens, recent: Recent | None) -> tuple[Tokens, Recent]:
        """Return the filtered channels, and the last inputs, which the next call needs."""
        y, recent = short_convolution(x, self.weight, self.bias, recent)
        return self.activation(y), recent

    def of_tokens(self, x: Tokens, real: Bool[Tensor, "b n"] | None, recent: Recent | None) -> tuple[Tokens, Recent]:
        """Return the same with padding left out: 0 where `real` is False, and not read by later tokens.

        A bias, of what is filtered or of the filter, would make padding non-zero, which would enter a state.
        """
        if real is None:
            return self(x, recent)
        y, recent = self(x.masked_fill(~real[..., None], 0), recent)
        return y.masked_fill(~real[..., None], 0), recent


def check_activation(activation: Activation) -> None:
    """Raise a ValueError unless there is such an activation function, and it takes 0 to 0."""
    need_known("activation", activation, ACTIVATIONS)
    must = "the activation of the short convolution must take 0 to 0: padding would enter the state"
    need(activation not in NOT_ZERO_AT_ZERO, must, f"got {activation!r}", "choose another one")
