"""What each token does by itself inside a layer."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from ordinate.checks import need_known, need_positive
from ordinate.linear import Linear
from ordinate.shapes import Tokens

Bend = Literal["gelu", "gelu_tanh", "relu", "silu"]
"""How numbers are bent."""
Kind = Literal["gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"]
"""How a feed-forward bends its numbers: those that end in glu gate one half by the other."""


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation of gelu that GPT-2 was trained with."""
    return gelu(x, approximate="tanh")


BENDS: dict[Bend, Callable[[Tensor], Tensor]] = {"gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu, "silu": silu}
PLAIN: dict[Kind, Callable[[Tensor], Tensor]] = {**BENDS}
GATED: dict[Kind, Callable[[Tensor], Tensor]] = {"swiglu": silu, "geglu": gelu, "geglu_tanh": gelu_tanh}


class FeedForward(nn.Module):
    """Widen, bend, narrow: each token by itself.

        plain:  W_2 f(W_1 x)
        gated:  W_3 (f(W_1 x) * W_2 x),   [W_1; W_2] in one matrix, `widen`

    Args:
        kind: f, and whether it is gated: gelu, gelu_tanh, relu, silu; swiglu (silu), geglu (gelu), geglu_tanh.
        width: columns of the model.
        hidden: columns inside.
        bias: whether numbers are added after each matrix.

    Raises:
        ValueError: an unknown kind, or no columns.
    Source: Vaswani et al. 2017, section 3.3, https://arxiv.org/abs/1706.03762; gates from Shazeer 2020,
        https://arxiv.org/abs/2002.05202.
    """

    def __init__(self, kind: Kind, width: int, hidden: int, *, bias: bool = False) -> None:
        super().__init__()
        need_known("feedforward", kind, {**PLAIN, **GATED})
        for name, value in (("width", width), ("hidden", hidden)):
            need_positive(name, value)
        self.gated = kind in GATED
        self.bend = GATED[kind] if self.gated else PLAIN[kind]
        self.widen = Linear(width, 2 * hidden if self.gated else hidden, bias=bias)
        self.narrow = Linear(hidden, width, bias=bias)

    def forward(self, x: Tokens) -> Tokens:
        """Each token by itself."""
        if not self.gated:
            return self.narrow(self.bend(self.widen(x)))
        gate, value = self.widen(x).chunk(2, -1)
        return self.narrow(self.bend(gate) * value)


def usual_hidden(kind: Kind, width: int) -> int:
    """The columns inside that give as many parameters for any kind: 4 width, or 8/3 width with a gate."""
    return 8 * width // 3 if kind in GATED else 4 * width
