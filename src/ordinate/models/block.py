"""One layer of a transformer."""

from typing import Any, Literal

from torch import nn

from ordinate.mixer import Mixer, State
from ordinate.scheme import Placed
from ordinate.shapes import Tokens

Norm = Literal["rms", "layer"]
FeedForward = Literal["gelu", "swiglu"]
NORMS: dict[Norm, type[nn.Module]] = {"rms": nn.RMSNorm, "layer": nn.LayerNorm}


class Gelu(nn.Module):
    """Widen, bend, narrow: W_2 gelu(W_1 x)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, hidden, bias=False)
        self.narrow = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tokens) -> Tokens:
        """Each token by itself."""
        return self.narrow(nn.functional.gelu(self.widen(x)))


class SwiGlu(nn.Module):
    """Widen twice, let one half gate the other, narrow: W_3 (silu(W_1 x) * W_2 x). Source: Shazeer 2020."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 2 * hidden, bias=False)
        self.narrow = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tokens) -> Tokens:
        """Each token by itself."""
        gate, value = self.widen(x).chunk(2, -1)
        return self.narrow(nn.functional.silu(gate) * value)


FEEDFORWARDS: dict[FeedForward, type[Gelu] | type[SwiGlu]] = {"gelu": Gelu, "swiglu": SwiGlu}


class Block(nn.Module):
    """Tokens exchange information, then each thinks by itself; both are added to what was there.

        x = x + mixer(norm(x));   x = x + feedforward(norm(x))

    Args:
        mixer: how tokens exchange information.
        feedforward: what each token does by itself.
        norm: makes a norm for a width.
        width: columns of the model.
        dropout: share of each branch's outputs dropped in training.
    """

    def __init__(
        self, mixer: Mixer[Any], feedforward: nn.Module, norm: type[nn.Module], width: int, dropout: float
    ) -> None:
        super().__init__()
        self.mixer_norm, self.mixer = norm(width), mixer
        self.feedforward_norm, self.feedforward = norm(width), feedforward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        mixed, state = self.mixer(self.mixer_norm(x), at, state)
        x = x + self.dropout(mixed)
        return x + self.dropout(self.feedforward(self.feedforward_norm(x))), state
