"""What all RWKV mixers share: each token's predecessor, reading from both sides, and a layer's place in its model."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.checks import need, need_counts
from ordinate.native.blend import MOST
from ordinate.native.blend import blended as native
from ordinate.native.scan import refuses
from ordinate.shapes import Tokens


def shifted(x: Tokens, last: Float[Tensor, "b width"] | None) -> tuple[Tokens, Float[Tensor, "b width"]]:
    """The token before each one, and the newest of all.

    Args:
        x: the tokens.
        last: the one before them; None: there is none, and zeros stand for it.
    """
    begin = _first(x, last)
    whole = torch.cat([begin[:, None], x], 1)
    return whole[:, :-1], whole[:, -1]


def newest(x: Tokens, last: Float[Tensor, "b width"] | None) -> Float[Tensor, "b width"]:
    """The newest token of all; of none, the one before them, or zeros."""
    return x[:, -1] if x.shape[1] else _first(x, last)


def blended(
    x: Tokens, last: Float[Tensor, "b width"] | None, shares: Float[Tensor, "ways width"], *extra: Tokens
) -> tuple[Tokens, ...]:
    """Each token with some of the one before it, a result for each way: x + (before - x) (share + extra).

    Args:
        x: the tokens.
        last: the one before them; None: there is none, and zeros stand for it.
        shares: how much of the one before, for each channel.
        extra: how much more each token takes, one for each way; none at all: nothing.
    """
    first = _first(x, last)
    # one pass over memory in C++ where there is a compiler: the same to rounding
    if len(shares) <= MOST and refuses("blend", x, first, shares, *extra) is None:
        return native(x, first, shares, extra)
    change = shifted(x, last)[0] - x
    own = [share + more for share, more in zip(shares, extra, strict=True)] if extra else shares
    return tuple(torch.addcmul(x, change, share) for share in own)


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


def _first(x: Tokens, last: Float[Tensor, "b width"] | None) -> Float[Tensor, "b width"]:
    """What stands before the first token."""
    begin = x.new_zeros(x.shape[0], x.shape[2]) if last is None else last
    need(
        begin.shape[0] == x.shape[0],
        "what is remembered and what is new need one batch",
        lambda: f"got {begin.shape[0]} and {x.shape[0]}",
        "use the state with the batch and the model that made it",
    )
    return begin.to(x.dtype)
