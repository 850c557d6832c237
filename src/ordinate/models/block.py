"""One layer of a transformer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from ordinate.attention_mixer import AttentionMixer
from ordinate.mixer import KeyValues, Mixer, State
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


@dataclass(frozen=True, eq=False)
class Look:
    """What the tokens of a layer look at in another sequence.

    Args:
        seen: its keys and values, as this layer has made them.
        at: where the tokens and those of the other sequence stand.
    """

    seen: KeyValues
    at: Placed

    def find(self, cross: AttentionMixer, x: Tokens) -> Tokens:
        """What tokens find there: the queries are theirs, keys and values are not."""
        return cross.attend_across(x, self.seen, self.at)


class Block(nn.Module):
    """Tokens exchange information, look at another sequence if there is one, and then each thinks by itself.

        x = x + mixer(norm(x));   x = x + cross(norm(x), source);   x = x + feedforward(norm(x))

    Args:
        mixer: how tokens exchange information.
        feedforward: what each token does by itself.
        norm: makes a norm for a width.
        width: columns of the model.
        dropout: share of each branch's outputs dropped in training.
        layer_scale: what each column of a branch is multiplied by at birth, then trained; None: nothing is.
        cross: how they look at the other sequence; None: there is none.
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
        cross: AttentionMixer | None = None,
    ) -> None:
        super().__init__()
        self.mixer_norm, self.mixer = norm(width), mixer
        if cross is not None:
            self.cross_norm: nn.Module = norm(width)
            self.cross = cross
        self.feedforward_norm: nn.Module = norm(width)
        self.feedforward = feedforward
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

    def enter(self, norm: nn.Module, x: Tokens) -> Tokens:
        """What a branch reads."""
        return norm(x)

    def leave(self, norm: nn.Module, x: Tokens, branch: Tokens) -> Tokens:
        """The tokens with what a branch has found."""
        return x + self.dropout(branch)

    def forward(
        self, x: Tokens, at: Placed, state: State | None = None, look: Look | None = None
    ) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        mixed, state = self.mixer(self.enter(self.mixer_norm, x), at, state)
        x = self.leave(self.mixer_norm, x, self.mixer_scale(mixed))
        if look is not None:
            found = look.find(self.cross, self.enter(self.cross_norm, x))
            x = self.leave(self.cross_norm, x, found)
        thought = self.feedforward_scale(self.feedforward(self.enter(self.feedforward_norm, x)))
        return self.leave(self.feedforward_norm, x, thought), state


def run(
    blocks: Sequence[Callable[..., tuple[Tokens, State | None]]],
    x: Tokens,
    places: Sequence[Placed],
    states: Sequence[State | None] | None,
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

        x = norm(x + mixer(x));   x = norm(x + cross(x, source));   x = norm(x + feedforward(x))

    Source: Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762.
    """

    def enter(self, norm: nn.Module, x: Tokens) -> Tokens:
        """The tokens as they are."""
        return x

    def leave(self, norm: nn.Module, x: Tokens, branch: Tokens) -> Tokens:
        """The sum, normed."""
        return norm(x + self.dropout(branch))


class ParallelBlock(Block):
    """All branches read the same tokens (GPT-NeoX).

        x = x + mixer(norm(x)) + cross(norm'(x), source) + feedforward(norm"(x))

    Source: Black et al. 2022, GPT-NeoX-20B, section 2.1.2, https://arxiv.org/abs/2204.06745.
    """

    def forward(
        self, x: Tokens, at: Placed, state: State | None = None, look: Look | None = None
    ) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        mixed, state = self.mix(x, at, state)
        if look is not None:
            mixed = mixed + self.dropout(look.find(self.cross, self.cross_norm(x)))
        return x + mixed + self.think(x), state


class SharedBlock(Block):
    """All branches read the same tokens through one norm (GPT-J).

        n = norm(x);   x = x + mixer(n) + cross(n, source) + feedforward(n)

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
        cross: AttentionMixer | None = None,
    ) -> None:
        super().__init__(mixer, feedforward, norm, width, dropout, layer_scale, cross)
        # held once: other names would appear in checkpoints
        self.cross_norm: nn.Module = nn.Identity()
        self.feedforward_norm: nn.Module = nn.Identity()

    def forward(
        self, x: Tokens, at: Placed, state: State | None = None, look: Look | None = None
    ) -> tuple[Tokens, State | None]:
        """One layer; returns what it remembers beside the tokens."""
        normed = self.mixer_norm(x)
        mixed, state = self.mixer(normed, at, state)
        if look is not None:
            mixed = mixed + look.find(self.cross, normed)
        mixed, thought = self.mixer_scale(mixed), self.feedforward_scale(self.feedforward(normed))
        return x + self.dropout(mixed) + self.dropout(thought), state


BLOCKS: dict[Order, type[Block]] = {
    "pre": Block,
    "post": PostBlock,
    "parallel": ParallelBlock,
    "shared": SharedBlock,
}
