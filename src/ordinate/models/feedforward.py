"""Feed-forward networks (MLPs) of transformer layers, plain or gated (GLU)."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import relu, silu

from ordinate.core.checks import need_known, need_positive
from ordinate.core.shapes import Tokens
from ordinate.ops.gelu import gelu, gelu_tanh
from ordinate.ops.linear_layer import Linear

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
"""Activation function."""
FeedForwardKind = Literal["gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"]
"""Kind of feed-forward network: an activation function, or a gated linear unit."""


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "silu": silu,
}
UNGATED: dict[FeedForwardKind, Callable[[Tensor], Tensor]] = {**ACTIVATIONS}
GATED: dict[FeedForwardKind, Callable[[Tensor], Tensor]] = {"swiglu": silu, "geglu": gelu, "geglu_tanh": gelu_tanh}


class FeedForward(nn.Module):
    """Position-wise feed-forward network, plain or gated.

        plain:  W_2 f(W_1 x)
        gated:  W_3 (f(W_1 x) * W_2 x),   [W_1; W_2] in one matrix, `widen`

    Args:
        kind: f, and whether it is gated: gelu, gelu_tanh, relu, silu; swiglu (silu), geglu (gelu), geglu_tanh.
        width: columns of the model.
        hidden: width of the hidden layer.
        bias: whether the linear layers have biases.
        out_bias: whether the last one has one; None: as `bias`.

    Raises:
        ValueError: an unknown kind, or a width that is not positive.
    Source: Vaswani et al. 2017, section 3.3, https://arxiv.org/abs/1706.03762; gated variants from Shazeer 2020,
        https://arxiv.org/abs/2002.05202.
    """

    def __init__(
        self, kind: FeedForwardKind, width: int, hidden: int, *, bias: bool = False, out_bias: bool | None = None
    ) -> None:
        super().__init__()
        need_known("feedforward", kind, {**UNGATED, **GATED})
        for name, value in (("width", width), ("hidden", hidden)):
            need_positive(name, value)
        self.gated = kind in GATED
        self.bend = GATED[kind] if self.gated else UNGATED[kind]
        self.widen = Linear(width, 2 * hidden if self.gated else hidden, bias=bias)
        self.narrow = Linear(hidden, width, bias=bias if out_bias is None else out_bias)

    def forward(self, x: Tokens) -> Tokens:
        """Apply the network to each token."""
        if not self.gated:
            return self.narrow(self.bend(self.widen(x)))
        gate, value = self.widen(x).chunk(2, -1)
        return self.narrow(self.bend(gate) * value)


def default_hidden_width(kind: FeedForwardKind, width: int) -> int:
    """Default hidden width, with equal parameter counts for all kinds: 4 width, or 8/3 width if gated."""
    return 8 * width // 3 if kind in GATED else 4 * width
