"""A mean of values, weighted by e^key, in which the weights of older tokens decay: what RWKV-4 reads.

    y_t = (sum_{i<t} e^{(t-1-i) w + k_i} v_i + e^{u + k_t} v_t) / (the same with v = 1)

Each sum is held without a factor e^p, where p is its largest exponent: whatever the keys are, no exponential of a
number above zero is taken. A text is cut into chunks that are read side by side, as many as keep the numbers of one
step in the processor's cache; O(n) memory, forward and backward.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.native import wkv as native
from ordinate.native.scan import need_shapes, refuses
from ordinate.native.wkv import Channel, Channels, Sums

Cut = Float[Tensor, "b chunks size c"]
# of several chunks two sums each, on the way back what each owes to the decay too, and their exponent
Held = tuple[Float[Tensor, "_ b _ c"], Float[Tensor, "b _ c"]]
Token = Callable[[int], Held]

# the exponent of a sum that holds nothing yet, and of a token that weighs nothing
NOTHING, WEIGHTLESS = -1e38, -1e30
# numbers of one step on a CPU
STEP = 2**15


def empty_sums(k: Channels) -> Sums:
    """The sums before the first token."""
    sums = k.new_zeros(k.shape[0], 3, k.shape[2])
    sums[:, 2] = NOTHING
    return sums


def wkv(k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums) -> tuple[Channels, Sums]:
    """The mean that each token reads, and the sums to go on from.

    Args:
        k: logarithms of the weights; `WEIGHTLESS` for a token that is not there. In float32 at least, as all others.
        v: what is averaged; 0 for a token that is not there.
        decay: w, below zero: what is added to the logarithms of all weights with each token.
        bonus: u, what is added to that of the token itself.
        start: the sums of the tokens before; `empty_sums`: there are none.
    """
    batch, _, channels = k.shape
    need_shapes(
        v=(v, k.shape), decay=(decay, (channels,)), bonus=(bonus, (channels,)), start=(start, (batch, 3, channels))
    )
    # one pass in C++ where there is a compiler: the same to rounding
    if refuses("wkv", k, v, decay, bonus, start) is None:
        return native.wkv(k, v, decay, bonus, start)
    return _Wkv.apply(k, v, decay, bonus, start)


class _Wkv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        y, total = torch.empty_like(k), torch.empty_like(k)
        held: Held = start[:, :2, None].transpose(0, 1), start[:, 2:]
        for part, chunks in _parts(k):
            keys, values, means, totals = (x[:, part].unflatten(1, (chunks, -1)) for x in (k, v, y, total))

            def token(place: int, keys: Cut = keys, values: Cut = values) -> Held:
                value = values[:, :, place]
                return torch.stack([value, torch.ones_like(value)]), keys[:, :, place]

            places = range(keys.shape[2])
            held = _before_chunks(held, token, places, range(chunks), decay)
            for place in places:
                value, key = token(place)
                (above, under), top = _joined(held, (value, key + bonus), 0.0)
                means[:, :, place] = above / under
                totals[:, :, place] = top + torch.log(under)
                held = _joined(held, (value, key), decay)
            held = _of_chunk(held, chunks - 1)
        end = torch.cat([held[0][:, :, 0].transpose(0, 1), held[1]], 1)
        ctx.save_for_backward(k, v, decay, bonus, start, y, total, end)
        return y, end

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        k, v, decay, bonus, start, y, total, end = ctx.saved_tensors
        gradient = torch.zeros_like(y) if grad_outputs[0] is None else grad_outputs[0]
        made = dk, dv, ddecay, dbonus = tuple(torch.zeros_like(x) for x in (k, v, decay, bonus))
        # what the tokens to come ask of numerator and denominator: such sums too, read from the end
        held = _asked_of_the_end(grad_outputs[1], end)
        for part, chunks in reversed(_parts(k)):
            whole = (k, v, y, total, gradient, dk, dv)
            cut = [x[:, part].unflatten(1, (chunks, -1)) for x in whole]

            def token(place: int, cut: list[Cut] = cut) -> Held:
                y, total, gradient = (x[:, :, place] for x in cut[2:5])
                return torch.stack([gradient, -gradient * y]), -total

            places = range(cut[0].shape[2] - 1, -1, -1)
            held = _before_chunks(held, token, places, range(chunks - 1, -1, -1), decay)
            for place in places:
                key, value, mean, total_here, asked = (x[:, :, place] for x in cut[:5])
                (above, under, above_owed, under_owed), exponent = held
                self_weight, later = torch.exp(bonus + key - total_here) * asked, torch.exp(key + exponent)
                here = self_weight * (value - mean)
                cut[5][:, :, place] = later * (value * above + under) + here
                cut[6][:, :, place] = later * above + self_weight
                dbonus += here.sum((0, 1))
                ddecay += (later * (value * above_owed + under_owed)).sum((0, 1))
                held = _joined(held, token(place), decay)
            held = _of_chunk(held, 0)
        asked, owed = held[0][:, :, 0].transpose(0, 1).split(2, 1)
        old = torch.exp(start[:, 2:] + held[1])
        ddecay += (old * start[:, :2] * owed).sum((0, 1))
        return *made, torch.cat([old * asked, torch.zeros_like(old)], 1)


def _parts(k: Channels) -> list[tuple[slice, int]]:
    """Stretches of the text, and how many chunks of equal length each is cut into."""
    batch, tokens, channels = k.shape
    # elsewhere steps cost more than what they compute
    most = STEP // max(1, batch * channels) if k.device.type == "cpu" else tokens
    chunks = max(1, min(most, math.isqrt(tokens)))
    whole = tokens // chunks * chunks
    parts = [(slice(0, whole), chunks), (slice(whole, tokens), 1)]
    return [(part, chunks) for part, chunks in parts if part.stop > part.start]


def _before_chunks(held: Held, token: Token, places: range, order: range, decay: Channel) -> Held:
    """The sums before each chunk, in this order; those of `held` are before the first."""
    if len(order) == 1:
        return held
    sums, exponent = held
    shape = len(order), sums.shape[-1]
    local: Held = sums.new_zeros(*sums.shape[:2], *shape), exponent.new_full((len(exponent), *shape), NOTHING)
    for place in places:
        local = _joined(local, token(place), decay)
    found = [held]
    for chunk in order[:-1]:
        found.append(_joined(found[-1], _of_chunk(local, chunk), decay, len(places)))
    sums, exponents = zip(*found[:: order.step], strict=True)
    return torch.cat(sums, 2), torch.cat(exponents, 1)


def _joined(one: Held, two: Held, decay: Channel | float, tokens: int = 1) -> Held:
    """The sums over both, `two` being so many tokens further; it may owe nothing to the decay."""
    (sums, exponent), (added, top) = one, two
    exponent = exponent + tokens * decay
    top = torch.maximum(exponent, top)
    joined = torch.exp(exponent - top) * sums
    if len(sums) == 4:
        joined[2:].add_(joined[:2], alpha=tokens)
    joined[: len(added)].addcmul_(torch.exp(two[1] - top), added)
    return joined, top


def _of_chunk(held: Held, chunk: int) -> Held:
    own = slice(chunk, chunk + 1)
    return held[0][:, :, own], held[1][:, own]


def _asked_of_the_end(gradient: Sums | None, end: Sums) -> Held:
    if gradient is None:
        gradient, exponent = torch.zeros_like(end), torch.full_like(end[:, 2:], NOTHING)
    else:
        exponent = -end[:, 2:]
    asked = gradient[:, :2, None].transpose(0, 1)
    return torch.cat([asked, torch.zeros_like(asked)]), exponent
