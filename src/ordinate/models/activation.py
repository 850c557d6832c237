"""Activation functions with parameters of their own, by the names of transformers."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from ordinate.ops.activation import Numbers

LearnedActivation = Literal["prelu", "xielu"]
"""Activation function with parameters of its own."""
# both slopes of xielu at the start, its linear part, and the number nearest to zero whose exponential it takes
SLOPE, LINEAR, NEAREST = 0.8, 0.5, -1e-6


class Xielu(nn.Module):
    """Expanded integral of the ELU, with a learned slope of its gradient on each side of zero.

        x > 0:   a_p x^2 + b x
        x <= 0:  a_n (exp(min(x, e)) - 1 - x) + b x

    a_p = softplus(alpha_p) and a_n = b + softplus(alpha_n), both 0.8 at the start; b = 0.5 and e = -1e-6 are kept
    with the weights and not trained.

    Source: Huang and Schlag 2024, Deriving Activation Functions Using Integration, section 3,
        https://arxiv.org/abs/2411.13010; that e is in the code of Apertus, https://arxiv.org/abs/2509.14233.
    """

    beta: Float[Tensor, ""]
    eps: Float[Tensor, ""]

    def __init__(self) -> None:
        super().__init__()
        self.alpha_p = nn.Parameter(torch.full((1,), math.log(math.expm1(SLOPE))))
        self.alpha_n = nn.Parameter(torch.full((1,), math.log(math.expm1(SLOPE - LINEAR))))
        self.register_buffer("beta", torch.tensor(LINEAR))
        self.register_buffer("eps", torch.tensor(NEAREST))

    def forward(self, x: Numbers) -> Numbers:
        """Return the function of each number."""
        above, below = softplus(self.alpha_p), self.beta + softplus(self.alpha_n)
        bent = torch.where(x > 0, above * x * x, (torch.expm1(torch.minimum(x, self.eps)) - x) * below)
        return bent + self.beta * x


LEARNED: dict[LearnedActivation, Callable[[], nn.Module]] = {"prelu": nn.PReLU, "xielu": Xielu}
"""What makes the function of each name; the slope of `prelu` below zero is 0.25 at the start."""
