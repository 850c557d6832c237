"""Step size and log decay of each token, as Mamba-2, gated DeltaNet and KDA parametrise them."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from ordinate.core.tensors import at_least_float32
from ordinate.ops.decay import decay_rate

# initial step sizes are drawn log-uniformly between these, as published [1 / token]
STEPS = (1e-3, 1e-1)


class StepDecay(nn.Module):
    """The step size of each head, or of each of its channels, and token, and the log decay that it makes.

        step = softplus(x + bias),   log decay = -rate step

    Each head has a rate, stored as its logarithm and initialised uniformly. The bias is initialised so that the step
    sizes at x = 0 are log-uniform between 0.001 and 0.1.

    Args:
        heads: heads.
        rates: smallest and largest initial rate.
        limits: smallest and largest step size, to which others are clamped; None: no limit.
        channels: channels of a head, each of which has a step size; None: the head has one.
    """

    def __init__(
        self,
        heads: int,
        rates: tuple[float, float],
        limits: tuple[float | None, float | None] = (None, None),
        channels: int | None = None,
    ) -> None:
        super().__init__()
        self.limits = limits
        rate = torch.empty(heads).uniform_(*rates)
        # a rate of exactly 0 has no logarithm
        self.log_rate = nn.Parameter(rate.clamp(min=1e-4).log())
        self.bias = nn.Parameter(draw_step_bias(*((heads,) if channels is None else (heads, channels))))

    def forward(self, x: Float[Tensor, "b n h *c"]) -> tuple[Float[Tensor, "b h n *c"], Float[Tensor, "b h n *c"]]:
        """Return the step sizes and the log decays, in float32 or wider."""
        # contiguous, since torch.compile takes the gradient of softplus to have the layout of its input
        step = softplus((at_least_float32(x) + at_least_float32(self.bias)).transpose(1, 2).contiguous())
        if self.limits != (None, None):
            step = step.clamp(*self.limits)
        rate = decay_rate(at_least_float32(self.log_rate)).unflatten(0, (-1, *(1 for _ in step.shape[2:])))
        return step, -rate * step


def draw_step_bias(*sizes: int) -> Float[Tensor, "*sizes"]:
    """Draw biases for which the step sizes, their softplus, are log-uniform between 0.001 and 0.1."""
    step = torch.empty(sizes).uniform_(*map(math.log, STEPS)).exp()
    # the inverse of softplus
    return step + torch.log(-torch.expm1(-step))
