"""Activation functions without parameters: elementwise, by the names of transformers."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import gelu as plain_gelu
from torch.nn.functional import hardswish, leaky_relu, mish, relu, relu6, silu, softplus

from ordinate.ops.gelu import gelu, gelu_tanh

Numbers = Float[Tensor, "*any"]
Activation = Literal[
    "gelu", "gelu_10", "gelu_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu",
    "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "tanh",
]  # fmt: skip
"""Activation function."""
# the largest value of gelu_10, and of its negative
LIMIT = 10.0
# mean and standard deviation of laplace, as MEGA has them
MEAN, STD = 0.707107, 0.282095


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
NOT_ZERO_AT_ZERO: frozenset[Activation] = frozenset({"laplace", "sigmoid", "sqrtsoftplus"})
"""Those that do not take 0 to 0, as padding needs it."""
