"""Feed-forward networks (MLPs) of transformer layers, plain or gated (GLU)."""

from collections.abc import Callable
from typing import Literal, cast

from torch import Tensor, nn

from ordinate.core.checks import need_known, need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.models.activation import LEARNED, LearnedActivation
from ordinate.ops.activation import ACTIVATIONS, Activation
from ordinate.ops.linear_layer import Linear

Gate = Literal[
    "bilinear", "geglu", "geglu_tanh", "glu", "reglu", "swiglu", "gated_gelu_10", "gated_hardswish", "gated_laplace",
    "gated_leaky_relu", "gated_mish", "gated_quick_gelu", "gated_relu2", "gated_relu6", "gated_sqrtsoftplus",
    "gated_tanh",
]  # fmt: skip
"""Kind of gated linear unit."""
FeedForwardKind = Literal[Activation, LearnedActivation, Gate]
"""Kind of feed-forward network: an activation function, one with parameters, or a gated linear unit."""
# those that the literature names have its names
GATED: dict[Gate, Activation] = {
    "bilinear": "linear",
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
    "glu": "sigmoid",
    "reglu": "relu",
    "swiglu": "silu",
    "gated_gelu_10": "gelu_10",
    "gated_hardswish": "hardswish",
    "gated_laplace": "laplace",
    "gated_leaky_relu": "leaky_relu",
    "gated_mish": "mish",
    "gated_quick_gelu": "quick_gelu",
    "gated_relu2": "relu2",
    "gated_relu6": "relu6",
    "gated_sqrtsoftplus": "sqrtsoftplus",
    "gated_tanh": "tanh",
}
"""The activation function of each gated linear unit."""
NO_SCALES = 1.0, 1.0
"""Factors of what the activation function reads and of the output that change nothing."""
FEEDFORWARD_KINDS: tuple[FeedForwardKind, ...] = (*ACTIVATIONS, *LEARNED, *GATED)


class FeedForward(nn.Module):
    """Position-wise feed-forward network, plain or gated.

        plain:  W_2 f(W_1 x)
        gated:  W_3 (f(W_1 x) * W_2 x),   [W_1; W_2] in one matrix, `widen`

    With `scales` (g, o), f reads g W_1 x and the output is multiplied by o.

    Args:
        kind: f, or a gated linear unit with its f: swiglu (silu), geglu (gelu), geglu_tanh, reglu (relu), glu
            (sigmoid), bilinear (linear); for others gated_ before the name of f. f may have parameters: `prelu`, and
            `xielu` (Apertus).
        width: columns of the model.
        hidden: width of the hidden layer.
        bias: whether the linear layers have biases.
        out_bias: whether the last one has one; None: as `bias`.
        scales: factors of what f reads, and of the output (Falcon-H1).

    Raises:
        ValueError: an unknown kind, or a width that is not positive.
    Source: Vaswani et al. 2017, section 3.3, https://arxiv.org/abs/1706.03762; gated variants from Shazeer 2020,
        https://arxiv.org/abs/2002.05202.
    """

    def __init__(
        self,
        kind: FeedForwardKind,
        width: int,
        hidden: int,
        *,
        bias: bool = False,
        out_bias: bool | None = None,
        scales: tuple[float, ...] = NO_SCALES,
    ) -> None:
        super().__init__()
        need_known("feedforward", kind, FEEDFORWARD_KINDS)
        need_positive_counts(width=width, hidden=hidden)
        self.gated, self.scales = kind in GATED, scales
        self.activation = make_activation(kind)
        self.widen = Linear(width, 2 * hidden if self.gated else hidden, bias=bias)
        self.narrow = Linear(hidden, width, bias=bias if out_bias is None else out_bias)

    def forward(self, x: Tokens) -> Tokens:
        """Apply the network to each token."""
        before, after = self.scales
        if not self.gated:
            return times(self.narrow(self.activation(times(self.widen(x), before))), after)
        gate, value = self.widen(x).chunk(2, -1)
        return times(self.narrow(self.activation(times(gate, before)) * value), after)


def times(x: Tensor, factor: float) -> Tensor:
    """Return x multiplied by a factor; with the factor 1, x itself."""
    return x if factor == 1 else x * factor


def make_activation(kind: FeedForwardKind) -> Callable[[Tensor], Tensor]:
    """Return the activation function of a kind of feed-forward network: a module if it has parameters."""
    if kind in LEARNED:
        return LEARNED[cast(LearnedActivation, kind)]()
    return ACTIVATIONS[GATED[cast(Gate, kind)] if kind in GATED else cast(Activation, kind)]


def default_hidden_width(kind: FeedForwardKind, width: int) -> int:
    """Default hidden width, with equal parameter counts for all kinds: 4 width, or 8/3 width if gated."""
    return 8 * width // 3 if kind in GATED else 4 * width
