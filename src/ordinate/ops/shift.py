"""What all RWKV mixers share: each token's predecessor, reading from both sides, and a layer's place in its model."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.checks import need, need_counts
from ordinate.shapes import Tokens


def shifted(x: Tokens, last: Float[Tensor, "b width"] | None) -> tuple[Tokens, Float[Tensor, "b width"]]:
    """The token before each one, and the newest of all.

    Args:
        x: the tokens.
        last: the one before them; None: there is none, and zeros stand for it.
    """
    begin = x.new_zeros(x.shape[0], x.shape[2]) if last is None else last
    need(
        begin.shape[0] == x.shape[0],
        "what is remembered and what is new need one batch",
        lambda: f"got {begin.shape[0]} and {x.shape[0]}",
        "use the state with the batch and the model that made it",
    )
    whole = torch.cat([begin[:, None].to(x.dtype), x], 1)
    return whole[:, :-1], whole[:, -1]


def both_ways(read: Callable[[Tokens], Tokens], x: Tokens, real: Bool[Tensor, "b n"] | None) -> Tokens:
    """Read a text from left to right and from right to left, and add what was read.

    Args:
        read: reads from left to right.
        x: the tokens.
        real: False at padding, which comes before a row's tokens in either direction; None: there is none.
    """
    return read(x) + _turned(read(_turned(x, real)), real)


def depth(layer: int, layers: int) -> tuple[float, float]:
    """How deep a layer lies: from 0 for the first to 1 for the last, and from 1 for the first to near 0 for the last.

    Args:
        layer: which one, from 0.
        layers: layers of the model; in a model of one, that one is the first.
    """
    need_counts(layer=layer, layers=layers)
    need(layer < layers, "layer counts from 0, below layers", f"got {layer} of {layers}", "give layers=layer + 1")
    return layer / max(1, layers - 1), 1 - layer / layers


def wide(x: Tensor) -> Tensor:
    """In float32 at least: what is summed up over a long text needs the digits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _turned(x: Tokens, real: Bool[Tensor, "b n"] | None) -> Tokens:
    """A row's tokens in reverse; padding stays where it is."""
    if real is None:
        return x.flip(1)
    place, first = torch.arange(x.shape[1], device=x.device), x.shape[1] - real.sum(1, keepdim=True)
    index = torch.where(place < first, place, first + x.shape[1] - 1 - place)
    return x.gather(1, index[..., None].expand_as(x))
