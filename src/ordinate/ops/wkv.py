"""The WKV operator of RWKV-4: a mean of values weighted by e^key, with exponential decay of older tokens.

    y_t = (sum_{i<t} e^{(t-1-i) w + k_i} v_i + e^{u + k_t} v_t) / (the same with v = 1)

Each sum is stored divided by e^p with p near its largest exponent, so that no key overflows. A sequence is split into
chunks that are processed in parallel, as many as keep the operands of one step in the processor's cache; O(n) memory,
forward and backward.
"""

import math
import operator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.double_backward import Tensors, gradients, untraceable
from ordinate.ops.native import wkv as native
from ordinate.ops.native.scan import check_shapes, unsupported_reason
from ordinate.ops.native.wkv import Channel, Channels, Sums
from ordinate.ops.triton import wkv as triton
from ordinate.ops.weighted_sums import EMPTY_EXPONENT, RunningSums, join_sums, scan_chunks, select_chunk, sum_chunks

ChunkedTokens = Float[Tensor, "b chunks size c"]

# key of padding, whose weight is 0
PADDING_KEY = -1e30
# elements of one step and of one segment of tokens on a CPU
STEP_ELEMENTS, SEGMENT_ELEMENTS = 2**14, 2**19
# smallest weight relative to that of a chunk's first token, and inverse of the largest factor: well within the range
# of float32
SMALLEST = 2.0**-80
LOG_2 = math.log(2)


def empty_sums(k: Channels) -> Sums:
    """Return the initial state, before the first token."""
    sums = k.new_zeros(k.shape[0], 3, k.shape[2])
    sums[:, 2] = EMPTY_EXPONENT
    return sums


@custom_operator("v", "start")
def wkv(k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums) -> tuple[Channels, Sums]:
    """Return the weighted mean at each token, and the final state.

    Args:
        k: keys, the logarithms of the weights; `PADDING_KEY` at padding. In float32 or wider, as are the others.
        v: values; 0 at padding.
        decay: w, negative: added to the logarithms of all earlier weights with each token.
        bonus: u, added to the logarithm of the current token's weight.
        start: state after earlier tokens; `empty_sums` if there are none.
    """
    batch, _, channels = k.shape
    check_shapes(
        v=(v, k.shape), decay=(decay, (channels,)), bonus=(bonus, (channels,)), start=(start, (batch, 3, channels))
    )
    # one pass over time on a GPU in Triton, after it has agreed with `_plain` there
    if triton.unusable_reason(_plain, k, v, decay, bonus, start) is None:
        return triton.wkv(_plain, k, v, decay, bonus, start)
    # one pass in C++ where there is a compiler; results agree up to rounding
    if unsupported_reason("wkv", k, v, decay, bonus, start) is None:
        return native.wkv(_plain, k, v, decay, bonus, start)
    inputs = k, v, decay, bonus, start
    if untraceable(k):
        return _plain(*inputs)
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return _Wkv.apply(*inputs)
    return _read(*inputs, None)


class _Wkv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        total = torch.empty_like(k)
        y, end = _read(k, v, decay, bonus, start, total)
        ctx.save_for_backward(k, v, decay, bonus, start, y, total, end)
        return y, end

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        inputs, exponent = saved[:5], saved[-1][:, 2:].detach()
        fast = partial(_gradients, saved)
        return gradients(fast, partial(_formula, exponent), inputs, grad_outputs)


def _gradients(saved: tuple[Tensor, ...], asked: Tensor | None, end_asked: Tensor | None) -> tuple[Tensor, ...]:
    k, v, decay, bonus, start, y, total, end = saved
    gradient = torch.zeros_like(y) if asked is None else asked
    made = dk, dv, ddecay, dbonus = tuple(torch.zeros_like(x) for x in (k, v, decay, bonus))
    # gradients of numerator and denominator from later tokens: running sums of the same form, from the end
    held = _asked_of_the_end(end_asked, end)
    for part, chunks in reversed(_parts(k)):
        whole = (k, v, y, total, gradient, dk, dv)
        cut = [x[:, part].unflatten(1, (chunks, -1)) for x in whole]

        def token(place: int, cut: list[ChunkedTokens] = cut) -> RunningSums:
            y, total, gradient = (x[:, :, place] for x in cut[2:5])
            return torch.stack([gradient, -gradient * y]), -total

        places = range(cut[0].shape[2] - 1, -1, -1)
        if chunks > 1:
            local = sum_chunks(token, places, held, chunks, decay)
            held = scan_chunks(held, local, range(chunks - 1, -1, -1), len(places), decay)
        for place in places:
            key, value, mean, total_here, up = (x[:, :, place] for x in cut[:5])
            (above, under, above_owed, under_owed), exponent = held
            self_weight, later = torch.exp(bonus + key - total_here) * up, torch.exp(key + exponent)
            here = self_weight * (value - mean)
            cut[5][:, :, place] = later * (value * above + under) + here
            cut[6][:, :, place] = later * above + self_weight
            dbonus += here.sum((0, 1))
            ddecay += (later * (value * above_owed + under_owed)).sum((0, 1))
            held = join_sums(held, token(place), decay)
        held = select_chunk(held, 0)
    of_sums, owed = held[0][:, :, 0].transpose(0, 1).split(2, 1)
    old = torch.exp(start[:, 2:] + held[1])
    ddecay += (old * start[:, :2] * owed).sum((0, 1))
    return *made, torch.cat([old * of_sums, torch.zeros_like(old)], 1)


# not nested: torch.compile cannot trace the annotations of a function that a backward pass defines
def _formula(exponent: Tensor, given: Tensors, upstream: Tensors) -> list[tuple[Tensors, Tensors]]:
    return [(_plain(*given, exponent=exponent), upstream)]


def _plain(
    k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums, exponent: Tensor | None = None
) -> tuple[Channels, Sums]:
    """The same token by token, by operations that autograd can trace.

    Args:
        k, v, decay, bonus, start: as in `wkv`.
        exponent: that of the final state; None: any.
    """
    sums, held, means = start[:, :2], start[:, 2:].detach(), []
    for key, value in zip(k.unbind(1), v.unbind(1), strict=True):
        own, token = (bonus + key)[:, None], torch.stack([value, torch.ones_like(value)], 1)
        top = torch.maximum(held, own.detach())
        read = torch.exp(held - top) * sums + torch.exp(own - top) * token
        means.append(read[:, 0] / read[:, 1])
        # exponents are constants: each sum is the same, whatever it is divided by
        top = torch.maximum(held + decay.detach(), key[:, None].detach())
        sums = torch.exp(held + decay - top) * sums + torch.exp(key[:, None] - top) * token
        held = top
    sums = sums if exponent is None else sums * torch.exp(held - exponent)
    y = torch.stack(means, 1) if means else k
    return y, torch.cat([sums, held if exponent is None else exponent], 1)


def _read(
    k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums, total: Channels | None
) -> tuple[Channels, Sums]:
    """Compute `wkv`; write the logarithm of each denominator to `total`."""
    y = torch.empty_like(k)
    held: RunningSums = start[:, :2, None].transpose(0, 1), start[:, 2:]
    for part, chunks in _parts(k):
        cut = [x[:, part].unflatten(1, (chunks, -1)) for x in ((k, v, y) if total is None else (k, v, y, total))]
        held = _under_one_exponent(held, cut, decay, bonus) or _token_by_token(held, cut, decay, bonus)
    return y, torch.cat([held[0][:, :, 0].transpose(0, 1), held[1]], 1)


def _parts(k: Channels) -> list[tuple[slice, int]]:
    """Split the sequence into segments, and give the number of equal chunks of each segment."""
    # numbers of their own in each graph of torch.compile, which unrolls the loops over segments and tokens
    batch, tokens, channels = (operator.index(size) for size in k.shape)
    numbers = max(1, batch * channels)
    # on other devices the overhead of a step exceeds its arithmetic: one segment, as many chunks as useful
    on_cpu = k.device.type == "cpu"
    most, stretch = (STEP_ELEMENTS // numbers, SEGMENT_ELEMENTS // numbers) if on_cpu else (tokens, tokens)
    parts = []
    for start in range(0, tokens, max(1, stretch)):
        end = min(start + max(1, stretch), tokens)
        chunks = max(1, min(most, math.isqrt(end - start)))
        whole = start + (end - start) // chunks * chunks
        parts += [(slice(start, whole), chunks), (slice(whole, end), 1)]
    return [(part, chunks) for part, chunks in parts if part.stop > part.start]


def _under_one_exponent(
    held: RunningSums, cut: list[ChunkedTokens], decay: Channel, bonus: Channel
) -> RunningSums | None:
    """Fast form of `_token_by_token`: weights relative to a chunk's first token, one exponential instead of four.

    Returns None if keys, bonus or previous state differ too much for one common exponent, or chunks have one token.
    """
    keys, values, means, *totals = cut
    # whether this form is accurate enough depends on values, which meta tensors and traces do not have
    if keys.shape[2] == 1 or not keys.numel() or keys.is_meta or torch.compiler.is_compiling():
        return None
    pairs, pace, own = keys.new_empty(2, *keys.shape), torch.exp(decay), torch.exp(bonus)
    # exp2 takes a quarter of the time of exp
    base = keys[:, :, :1] / LOG_2
    weights = torch.add(-base, keys, alpha=1 / LOG_2, out=pairs[1]).exp2_()
    torch.mul(weights, values, out=pairs[0])
    tokens, chunks, exponent = pairs.unbind(3), keys.shape[1], base[:, :, 0] * LOG_2
    if chunks > 1:
        local = tokens[0].clone()
        for token in tokens[1:]:
            torch.addcmul(token, local, pace, out=local)
        held = scan_chunks(held, (local, exponent), range(chunks), len(tokens), decay)
    factor = torch.exp(held[1] - exponent)
    least = weights.amin() * own.min().clamp(max=1)
    if not (least >= SMALLEST and max(factor.max(), own.max()) <= 1 / SMALLEST):
        return None
    sums = held[0] * factor
    above, under = read = torch.empty_like(sums)
    for place, (token, mean) in enumerate(zip(tokens, means.unbind(2), strict=True)):
        torch.addcmul(sums, token, own, out=read)
        torch.div(above, under, out=mean)
        for total in totals:
            torch.log2(under, out=total[:, :, place])
        torch.addcmul(token, sums, pace, out=sums)
    for total in totals:
        total.add_(base).mul_(LOG_2)
    return select_chunk((sums, exponent), chunks - 1) if sums.sum().isfinite() else None


def _token_by_token(held: RunningSums, cut: list[ChunkedTokens], decay: Channel, bonus: Channel) -> RunningSums:
    """Write the means, and the logarithms of their denominators; return the state at the end."""
    keys, values, means, *totals = cut
    chunks, places = keys.shape[1], range(keys.shape[2])

    def token(place: int) -> RunningSums:
        value = values[:, :, place]
        return torch.stack([value, torch.ones_like(value)]), keys[:, :, place]

    if chunks > 1:
        held = scan_chunks(held, sum_chunks(token, places, held, chunks, decay), range(chunks), len(places), decay)
    for place in places:
        value, key = token(place)
        (above, under), top = join_sums(held, (value, key + bonus), 0.0)
        means[:, :, place] = above / under
        for total in totals:
            total[:, :, place] = top + torch.log(under)
        held = join_sums(held, (value, key), decay)
    return select_chunk(held, chunks - 1)


def _asked_of_the_end(gradient: Sums | None, end: Sums) -> RunningSums:
    if gradient is None:
        gradient, exponent = torch.zeros_like(end), torch.full_like(end[:, 2:], EMPTY_EXPONENT)
    else:
        exponent = -end[:, 2:]
    asked = gradient[:, :2, None].transpose(0, 1)
    return torch.cat([asked, torch.zeros_like(asked)]), exponent
