# pyrefly: ignore-errors
"""Kernels of the WKV operator of RWKV-4: one pass over time, forward and backward.

    y_t = (sum_{i<t} e^{(t-1-i) w + k_i} v_i + e^{u + k_t} v_t) / (the same with v = 1)

Sums are stored divided by e^p, with p the largest exponent of their terms, so that only exponentials of numbers that
are not positive are taken. The backward pass has sums of the same form over later tokens, of the gradients of
numerator and denominator, beside the derivatives of these by w.
"""

import torch
import triton.language as tl
from torch import Tensor

from ordinate.ops.triton.kernel import kernel, launch

# channels of a program, one for each thread of a warp: many programs, since time is in sequence
BLOCK = 32
OPTIONS = {"num_warps": 1, "num_stages": 1}


@kernel
def channel_place(BLOCK: tl.constexpr):
    """Sequence and channels of a program."""
    return tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)


@kernel
def load_sums(sums, batch, c, channels):
    """Numerator, denominator and exponent of the sums of some channels."""
    place, real = sums + batch * 3 * channels + c, c < channels
    above = tl.load(place, mask=real, other=0.0)
    under = tl.load(place + channels, mask=real, other=0.0)
    return above, under, tl.load(place + 2 * channels, mask=real, other=0.0)


@kernel
def wkv_forward(given, start, made, end, tokens, channels, BLOCK: tl.constexpr):
    """Store means, exponents and inverse denominators of all tokens, and the state after the last.

    Args:
        given: keys and values (batch, tokens, channels), decay and bonus (channels).
        start: the first state (batch, 3, channels).
        made: means; of each token the exponent of its sums, and the inverse of its denominator divided by that.
        end: the last state.
        tokens: number of tokens.
        channels: number of channels.
        BLOCK: channels of a program.
    """
    k, v, decay, bonus = given
    y, top, share = made
    batch, c = channel_place(BLOCK)
    real = c < channels
    pace, extra = tl.load(decay + c, mask=real, other=0.0), tl.load(bonus + c, mask=real, other=0.0)
    above, under, exponent = load_sums(start, batch, c, channels)
    place, stop = batch * tokens * channels + c, (batch + 1) * tokens * channels
    key, value = tl.load(k + place, mask=real, other=0.0), tl.load(v + place, mask=real, other=0.0)
    for _ in range(0, tokens):
        # the next token is on its way while this one is computed
        ahead = place + channels
        follows = real & (ahead < stop)
        next_key, next_value = (
            tl.load(k + ahead, mask=follows, other=0.0),
            tl.load(v + ahead, mask=follows, other=0.0),
        )
        highest = tl.maximum(exponent, extra + key)
        old, own = tl.exp(exponent - highest), tl.exp(extra + key - highest)
        part = 1.0 / (old * under + own)
        tl.store(y + place, (old * above + own * value) * part, mask=real)
        tl.store(top + place, highest, mask=real)
        tl.store(share + place, part, mask=real)
        highest = tl.maximum(exponent + pace, key)
        old, own = tl.exp(exponent + pace - highest), tl.exp(key - highest)
        above, under, exponent = old * above + own * value, old * under + own, highest
        place, key, value = ahead, next_key, next_value
    place = end + batch * 3 * channels + c
    tl.store(place, above, mask=real)
    tl.store(place + channels, under, mask=real)
    tl.store(place + 2 * channels, exponent, mask=real)


@kernel
def wkv_backward(given, ends, saved, gradients, made, tokens, channels, BLOCK: tl.constexpr):
    """Store the gradients of keys, values, decay, bonus and first state; those of decay and bonus by sequence.

    Args:
        given: as in `wkv_forward`.
        ends: the first state, and the last.
        saved: what `wkv_forward` has made.
        gradients: of the means and of the last state; that of its exponent is not read.
        made: gradients of keys, values, decay, bonus (batch, channels) and first state.
        tokens: number of tokens.
        channels: number of channels.
        BLOCK: channels of a program.
    """
    k, v, decay, bonus = given
    y, top, share = saved
    gradient, gradient_end = gradients
    dk, dv, ddecay, dbonus, dstart = made
    start, end = ends
    batch, c = channel_place(BLOCK)
    real = c < channels
    pace, extra = tl.load(decay + c, mask=real, other=0.0), tl.load(bonus + c, mask=real, other=0.0)
    above, under, _ = load_sums(gradient_end, batch, c, channels)
    exponent = -tl.load(end + (batch * 3 + 2) * channels + c, mask=real, other=0.0)
    # the derivatives of both by the decay, and the gradients of decay and bonus
    above_slope, under_slope = tl.zeros_like(above), tl.zeros_like(above)
    of_decay, of_bonus = tl.zeros_like(above), tl.zeros_like(above)
    for step in range(0, tokens):
        place = (batch * tokens + tokens - 1 - step) * channels + c
        key, value = tl.load(k + place, mask=real, other=0.0), tl.load(v + place, mask=real, other=0.0)
        mean, highest = tl.load(y + place, mask=real, other=0.0), tl.load(top + place, mask=real, other=0.0)
        asked = tl.load(gradient + place, mask=real, other=0.0) * tl.load(share + place, mask=real, other=0.0)
        own, later = tl.exp(extra + key - highest) * asked, tl.exp(key + exponent)
        here = own * (value - mean)
        tl.store(dv + place, later * above + own, mask=real)
        tl.store(dk + place, later * (value * above + under) + here, mask=real)
        of_bonus += here
        of_decay += later * (value * above_slope + under_slope)
        new = tl.maximum(exponent + pace, -highest)
        old, added = tl.exp(exponent + pace - new), tl.exp(-highest - new) * asked
        above_slope, under_slope = old * (above_slope + above), old * (under_slope + under)
        above, under, exponent = old * above + added, old * under - added * mean, new
    numerator, denominator, first = load_sums(start, batch, c, channels)
    later = tl.exp(first + exponent)
    of_decay += later * (numerator * above_slope + denominator * under_slope)
    tl.store(ddecay + batch * channels + c, of_decay, mask=real)
    tl.store(dbonus + batch * channels + c, of_bonus, mask=real)
    place = dstart + batch * 3 * channels + c
    tl.store(place, later * above, mask=real)
    tl.store(place + channels, later * under, mask=real)
    tl.store(place + 2 * channels, tl.zeros_like(later), mask=real)


def forward(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, start: Tensor) -> tuple[Tensor, ...]:
    """Return the means, the last state, and of each token the exponent and the inverse denominator.

    Args:
        k, v, decay, bonus, start: as in `ordinate.ops.wkv.wkv`, in float32.
    """
    batch, tokens, channels = k.shape
    given = tuple(x.contiguous() for x in (k, v, decay, bonus))
    made, end = tuple(k.new_empty(k.shape) for _ in range(3)), start.new_empty(start.shape)
    grid = batch, -(-channels // BLOCK)
    launch(wkv_forward, grid, (given, start.contiguous(), made, end, tokens, channels, BLOCK), OPTIONS)
    return made[0], end, *made[1:]


def backward(
    gradients: tuple[Tensor, Tensor], given: tuple[Tensor, ...], saved: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Return the gradients of keys, values, decay, bonus and first state.

    Args:
        gradients: of means and last state.
        given: as in `forward`.
        saved: what it returns.
    """
    batch, tokens, channels = given[0].shape
    y, end, *of_tokens = saved
    k, v, decay, bonus, start = (x.contiguous() for x in given)
    made = [torch.empty_like(k), torch.empty_like(v), *(k.new_empty(batch, channels) for _ in range(2))]
    made.append(torch.empty_like(start))
    tensors = (k, v, decay, bonus), (start, end), (y, *of_tokens), tuple(x.contiguous() for x in gradients)
    grid = batch, -(-channels // BLOCK)
    launch(wkv_backward, grid, (*tensors, tuple(made), tokens, channels, BLOCK), OPTIONS)
    dk, dv, ddecay, dbonus, dstart = made
    return dk, dv, ddecay.sum(0), dbonus.sum(0), dstart
