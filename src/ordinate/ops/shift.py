"""Shared parts of the RWKV mixers: token shift, bidirectional reading, and depth-dependent initialisation."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ordinate.core.checks import need, need_counts
from ordinate.core.shapes import Tokens
from ordinate.ops.native.blend import MAX_INTERPOLATIONS
from ordinate.ops.native.blend import interpolate_previous as native
from ordinate.ops.native.scan import unsupported_reason


def token_shift(x: Tokens, last: Float[Tensor, "b width"] | None) -> tuple[Tokens, Float[Tensor, "b width"]]:
    """Token shift: return the previous token of each token, and the last token.

    Args:
        x: the tokens.
        last: the token before them; None: there is none, and zeros are used.
    """
    begin = _first(x, last)
    whole = torch.cat([begin[:, None], x], 1)
    return whole[:, :-1], whole[:, -1]


def last_token(x: Tokens, last: Float[Tensor, "b width"] | None) -> Float[Tensor, "b width"]:
    """Return the last token; if `x` is empty, the one before it, or zeros."""
    return x[:, -1] if x.shape[1] else _first(x, last)


def interpolate_previous(
    x: Tokens, last: Float[Tensor, "b width"] | None, shares: Float[Tensor, "ways width"], *extra: Tokens
) -> tuple[Tokens, ...]:
    """Interpolate each token with the previous one, for each row of `shares`: x + (previous - x) (share + extra).

    Args:
        x: the tokens.
        last: the token before them; None: there is none, and zeros are used.
        shares: weight of the previous token for each channel, one row per result.
        extra: data-dependent additions to the weights, one tensor per result, or none at all.
    """
    first = _first(x, last)
    # one pass over memory in C++ where there is a compiler; results agree up to rounding
    if len(shares) <= MAX_INTERPOLATIONS and unsupported_reason("blend", x, first, shares, *extra) is None:
        return native(_interpolated, x, first, shares, extra)
    return _interpolated(x, first, shares, *extra)


def bidirectional(
    read: Callable[[Float[Tensor, "b n d"]], Float[Tensor, "b n e"]],
    x: Float[Tensor, "b n d"],
    real: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b n e"]:
    """Apply a causal recurrence in both directions and add the results.

    Args:
        read: the recurrence, from left to right.
        x: the tokens.
        real: False at padding, which stays on the left in both directions; None: no padding.
    """
    return read(x) + _turned(read(_turned(x, real)), real)


def relative_depth(layer: int, layers: int) -> tuple[float, float]:
    """Relative depth of a layer for RWKV's initialisation: layer / (layers - 1), and 1 - layer / layers.

    Args:
        layer: index of the layer, from 0.
        layers: layers of the model; a single layer counts as the first.
    """
    need_counts(layer=layer, layers=layers)
    need(layer < layers, "layer must be below layers", f"got {layer} of {layers}", "give layers=layer + 1")
    return layer / max(1, layers - 1), 1 - layer / layers


def to_float32(x: Tensor) -> Tensor:
    """Convert to float32 or wider: sums over long sequences lose too many digits in 16 bits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _interpolated(
    x: Tokens, first: Float[Tensor, "b width"], shares: Float[Tensor, "ways width"], *extra: Tokens
) -> tuple[Tokens, ...]:
    change = token_shift(x, first)[0] - x
    own = [share + more for share, more in zip(shares, extra, strict=True)] if extra else shares
    return tuple(torch.addcmul(x, change, share) for share in own)


def _turned(x: Tokens, real: Bool[Tensor, "b n"] | None) -> Tokens:
    """Reverse the tokens of each sequence; left padding stays in place."""
    if real is None:
        return x.flip(1)
    place, first = torch.arange(x.shape[1], device=x.device), x.shape[1] - real.sum(1, keepdim=True)
    index = torch.where(place < first, place, first + x.shape[1] - 1 - place)
    return x.gather(1, index[..., None].expand_as(x))


def _first(x: Tokens, last: Float[Tensor, "b width"] | None) -> Float[Tensor, "b width"]:
    """Return the token before the first one, zeros if there is none."""
    begin = x.new_zeros(x.shape[0], x.shape[2]) if last is None else last
    need(
        begin.shape[0] == x.shape[0],
        "the recurrent state must have the batch size of the new tokens",
        lambda: f"got {begin.shape[0]} and {x.shape[0]}",
        "use the state with the batch and the model that made it",
    )
    return begin.to(x.dtype)
