"""Activation functions: elementwise, without parameters or with learned ones, by the names of transformers."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu as plain_gelu
from torch.nn.functional import hardswish, leaky_relu, mish, relu, relu6, silu, softplus

from ordinate.ops.gelu import gelu, gelu_tanh

Numbers = Float[Tensor, "*any"]
Activation = Literal[
    "gelu", "gelu_10", "gelu_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu",
    "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "tanh",
]  # fmt: skip
"""Activation function."""
LearnedActivation = Literal["prelu", "xielu"]
"""Activation function with parameters of its own."""
# the largest value of gelu_10, and of its negative
LIMIT = 10.0
# mean and standard deviation of laplace, as MEGA has them
MEAN, STD = 0.707107, 0.282095
# both slopes of xielu at the start, its linear part, and the number nearest to zero whose exponential it takes
SLOPE, LINEAR, NEAREST = 0.8, 0.5, -1e-6


def quick_gelu(x: Numbers) -> Numbers:
    """Sigmoid approximation of GELU (CLIP): x sigmoid(1.702 x).

    Source: Hendrycks and Gimpel 2016, section 2, https://arxiv.org/abs/1606.08415.
    """
    return x * torch.sigmoid(1.702 * x)


def gelu_10(x: Numbers) -> Numbers:
    """GELU, clipped to -10 and 10, for quantisation; see `ordinate.ops.gelu`.

    Source: Wu et al. 2020, Integer Quantization for Deep Learning Inference, https://arxiv.org/abs/2004.09602.
    """
    return plain_gelu(x).clamp(-LIMIT, LIMIT)


def laplace(x: Numbers) -> Numbers:
    """Cumulative normal distribution of mean 0.707107 and standard deviation 0.282095.

    Source: Ma et al. 2022, Mega, equation 16, https://arxiv.org/abs/2209.10655, where it is called Laplace.
    """
    return 0.5 * (1 + torch.erf((x - MEAN) / (STD * math.sqrt(2))))


def relu2(x: Numbers) -> Numbers:
    """Squared ReLU: max(x, 0)^2.

    Source: So et al. 2021, Primer, section 2, https://arxiv.org/abs/2109.08668.
    """
    return relu(x).square()


def sqrtsoftplus(x: Numbers) -> Numbers:
    """Square root of the softplus: sqrt(log(1 + e^x))."""
    return softplus(x).sqrt()


def linear(x: Numbers) -> Numbers:
    """The identity."""
    return x


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_10": gelu_10,
    "gelu_tanh": gelu_tanh,
    "hardswish": hardswish,
    "laplace": laplace,
    "leaky_relu": leaky_relu,
    "linear": linear,
    "mish": mish,
    "quick_gelu": quick_gelu,
    "relu": relu,
    "relu2": relu2,
    "relu6": relu6,
    "sigmoid": torch.sigmoid,
    "silu": silu,
    "sqrtsoftplus": sqrtsoftplus,
    "tanh": torch.tanh,
}
"""The function of each name; `leaky_relu` has the slope 0.01 below zero."""


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
