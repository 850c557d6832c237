"""One layer of a transformer."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from ordinate.mixer import Mixer, State
from ordinate.scheme import Placed
from ordinate.shapes import Tokens

Order = Literal["pre", "post", "parallel", "shared"]


class LayerScale(nn.Module):
    """Multiply each column by a trained number, small at first, so that a deep model begins close to doing nothing.

    Source: Touvron et al. 2021, Going deeper with Image Transformers, equation 4, https://arxiv.org/abs/2103.17239.
    """

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), float(scale)))

    def forward(self, x: Tokens) -> Tokens:
        """The scaled columns."""
        return x * self.weight


class Block(nn.Module):
    """Tokens exchange information, then each thinks by itself; both are added to what was there.

        x = x + mixer(norm(x));   x = x + feedforward(norm(x))

    Args:
        mixer: how tokens exchange information.
        feedforward: what each token does by itself.
        norm: makes a norm for a width.
        width: columns of the model.
        dropout: share of each branch's outputs dropped in training.
        layer_scale: what each column of a branch is multiplied by at birth, then trained; None: nothing is.
    Source: Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, figure 1b,
        https://arxiv.org/abs/2002.04745.
    """

    def __init__(
        self,
        mixer: Mixer[Any],
        feedforward: nn.Module,
        norm: Callable[[int], nn.Module],
        width: int,
        dropout: float,
        layer_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.mixer_norm, self.mixer = norm(width), mixer
        self.feedforward_norm, self.feedforward = norm(width), feedforward
        self.mixer_scale, self.feedforward_scale = (
            nn.Identity() if layer_scale is None else LayerScale(width, layer_scale) for _ in range(2)
        )
        self.dropout = nn.Dropout(dropout)

    def mix(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """What the tokens learn from each other, and what the layer remembers."""
        mixed, state = self.mixer(self.mixer_norm(x), at, state)
        return self.dropout(self.mixer_scale(mixed)), state

    def think(self, x: Tokens) -> Tokens:
        """What each token learns by itself."""
        return self.dropout(self.feedforward_scale(self.feedforward(self.feedforward_norm(x))))

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


class PostBlock(Block):
    """The layer of the first transformer, and of BERT: the sum is normed, not what enters a branch.

        x = norm(x + mixer(x));   x = norm(x + feedforward(x))

    Source: Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762.
    """

    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        mixed, state = self.mixer(x, at, state)
        x = self.mixer_norm(x + self.dropout(self.mixer_scale(mixed)))
        return self.feedforward_norm(x + self.dropout(self.feedforward_scale(self.feedforward(x)))), state


class ParallelBlock(Block):
    """Both branches read the same tokens (GPT-NeoX).

        x = x + mixer(norm(x)) + feedforward(norm'(x))

    Source: Black et al. 2022, GPT-NeoX-20B, section 2.1.2, https://arxiv.org/abs/2204.06745.
    """

    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        mixed, state = self.mix(x, at, state)
        return x + mixed + self.think(x), state


class SharedBlock(Block):
    """Both branches read the same tokens through one norm (GPT-J).

        n = norm(x);   x = x + mixer(n) + feedforward(n)

    Source: Wang and Komatsuzaki 2021, GPT-J-6B, https://github.com/kingoflolz/mesh-transformer-jax.
    """

    def __init__(
        self,
        mixer: Mixer[Any],
        feedforward: nn.Module,
        norm: Callable[[int], nn.Module],
        width: int,
        dropout: float,
        layer_scale: float | None = None,
    ) -> None:
        super().__init__(mixer, feedforward, norm, width, dropout, layer_scale)
        # held once: a second name would appear in checkpoints
        self.feedforward_norm = nn.Identity()

    def forward(self, x: Tokens, at: Placed, state: State | None = None) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        normed = self.mixer_norm(x)
        mixed, state = self.mixer(normed, at, state)
        mixed, thought = self.mixer_scale(mixed), self.feedforward_scale(self.feedforward(normed))
        return x + self.dropout(mixed) + self.dropout(thought), state


BLOCKS: dict[Order, type[Block]] = {
    "pre": Block,
    "post": PostBlock,
    "parallel": ParallelBlock,
    "shared": SharedBlock,
}
