"""One layer of a transformer."""

from collections.abc import Sequence
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

    def mix(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """What the tokens learn from each other, and what the layer remembers."""
        mixed, state = self.mixer(self.mixer_norm(x), at, state)
        return self.dropout(mixed), state

    def think(self, x: Tokens) -> Tokens:
        """What each token learns by itself."""
        return self.dropout(self.feedforward(self.feedforward_norm(x)))

    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        mixed, state = self.mix(x, at, state)
        x = x + mixed
        return x + self.think(x), state


def run(
    blocks: Sequence[Block], x: Tokens, places: Sequence[Placed], states: Sequence[State | None] | None
) -> tuple[Tokens, list[State | None]]:
    """The tokens after all blocks, and what each layer remembers.

    Args:
        blocks: the layers.
        x: what enters the first.
        places: where the tokens stand, as each layer's scheme sees it.
        states: what each layer remembered before; None: nothing is to be remembered.
    """
    left: list[State | None] = []
    for layer, block in enumerate(blocks):
        x, state = block(x, places[layer], states[layer] if states else None)
        left.append(None if states is None else state)
    return x, left
