"""The selective scan of Mamba: one decaying state for each channel and state index, with step sizes of the tokens.

    h_t = e^{-rate step_t} * h_{t-1} + b_t^T u_t,     y_t = c_t h_t

The states of all tokens would take as many times the memory of the tokens as there are state indices. So they are
computed segment by segment: all decays and updates of a segment at once, then one multiplication and addition for
each token. Only the state before each segment is kept, and the backward pass computes the others again. Exponents are
never positive, so that no decay overflows.
"""

import operator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.tensors import without_autocast
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.double_backward import gradients, in_one, untraceable
from ordinate.ops.native.scan import check_shapes

Channels = Float[Tensor, "b n d"]
Indexed = Float[Tensor, "b n s"]
Rates = Float[Tensor, "s d"]
States = Float[Tensor, "b s d"]
# tokens first, so that those of one token are contiguous
Segment = Float[Tensor, "n b s d"]

# numbers of the states of a segment: on a CPU they stay in a cache
CPU_ELEMENTS, DEVICE_ELEMENTS = 2**18, 2**26


@custom_operator("u", "start")
def selective_scan(
    u: Channels, step: Channels, rate: Rates, b: Indexed, c: Indexed, start: States
) -> tuple[Channels, States]:
    """Return the output of each token and the final state.

    Args:
        u: inputs, each multiplied by its step size; 0 at padding. In float32 or wider, as are the others.
        step: step size of each channel and token, not negative.
        rate: decay rate of each state index and channel, not negative and finite.
        b: weights with which a token's inputs are added to the states.
        c: weights with which the states are read.
        start: state after earlier tokens; zeros if there are none.
    """
    batch, tokens, channels = u.shape
    states = rate.shape[0]
    check_shapes(
        step=(step, u.shape),
        rate=(rate, (states, channels)),
        b=(b, (batch, tokens, states)),
        c=(c, (batch, tokens, states)),
        start=(start, (batch, states, channels)),
    )
    inputs = u, step, rate, b, c, start
    # long sums need float32: autocast would compute these products in 16 bits
    with without_autocast(u):
        if untraceable(u):
            return _plain(*inputs)
        if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
            return _Scan.apply(*inputs)
        return _read(*inputs)[:2]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        y, end, ctx.kept = _read(*inputs)
        ctx.save_for_backward(*inputs)
        return y, end

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs, kept = ctx.saved_tensors, ctx.kept

        def fast(*upstream: Tensor | None) -> tuple[Tensor, ...]:
            return _gradients(inputs, kept, *upstream)

        return gradients(fast, in_one(_plain), inputs, grad_outputs)


def _plain(
    u: Channels, step: Channels, rate: Rates, b: Indexed, c: Indexed, start: States
) -> tuple[Channels, States]:
    """The same token by token, by operations that autograd can trace."""
    state, rows = start, []
    for one, size, into, out in zip(*(x.unbind(1) for x in (u, step, b, c)), strict=True):
        state = torch.exp(-rate * size[:, None]) * state + into[..., None] * one[:, None]
        rows.append((out[:, None] @ state)[:, 0])
    return torch.stack(rows, 1) if rows else u, state


def _read(
    u: Channels, step: Channels, rate: Rates, b: Indexed, c: Indexed, start: States
) -> tuple[Channels, States, list[States]]:
    """Return the outputs, the final state, and the state before each segment."""
    y, state, kept = torch.empty_like(u), start, []
    for part in _segments(u, rate):
        kept.append(state)
        states, _ = _states(u[:, part], step[:, part], rate, b[:, part], state)
        y[:, part] = (_tokens_first(c[:, part])[:, :, None] @ states)[:, :, 0].transpose(0, 1)
        # a copy: a view would keep the states of the segment alive
        state = states[-1].clone()
    return y, state, kept


def _states(u: Channels, step: Channels, rate: Rates, b: Indexed, state: States) -> tuple[Segment, Segment]:
    """Return the state after each token of a segment, and the decays."""
    decays = (_tokens_first(step)[:, :, None] * -rate).exp_()
    states = _tokens_first(b)[..., None] * _tokens_first(u)[:, :, None]
    for new, decay in zip(states.unbind(0), decays.unbind(0), strict=True):
        state = new.addcmul_(decay, state)
    return states, decays


def _gradients(
    inputs: tuple[Tensor, ...], kept: list[States], asked: Channels | None, end: States | None
) -> tuple[Tensor, ...]:
    """Return the gradients of the inputs, from the last segment to the first."""
    u, step, rate, b, c, start = inputs
    made = du, dstep, drate, db, dc = tuple(torch.zeros_like(x) for x in inputs[:5])
    asked = torch.zeros_like(u) if asked is None else asked
    # gradient of the state before the tokens that have been read
    owed = torch.zeros_like(start) if end is None else end
    for part, before in reversed(list(zip(_segments(u, rate), kept, strict=True))):
        ins, sizes, into, outs, above = (_tokens_first(x[:, part]) for x in (u, step, b, c, asked))
        states, decays = _states(u[:, part], step[:, part], rate, b[:, part], before)
        slopes = outs[..., None] * above[:, :, None]
        dc[:, part] = (states @ above[..., None])[..., 0].transpose(0, 1)
        for slope, decay in zip(reversed(slopes.unbind(0)), reversed(decays.unbind(0)), strict=True):
            owed = slope.add_(owed) * decay
        du[:, part] = (into[:, :, None] @ slopes)[:, :, 0].transpose(0, 1)
        db[:, part] = (slopes @ ins[..., None])[..., 0].transpose(0, 1)
        # now the gradients of the exponents
        slopes.mul_(decays)
        slopes[1:].mul_(states[:-1])
        slopes[0].mul_(before)
        drate -= (slopes * sizes[:, :, None]).sum((0, 1))
        dstep[:, part] = -slopes.mul_(rate).sum(2).transpose(0, 1)
    return *made, owed


def _segments(u: Channels, rate: Rates) -> list[slice]:
    """Split the tokens into segments."""
    # numbers of their own in each graph of torch.compile, which unrolls the loops over segments and tokens
    batch, tokens, channels, states = (operator.index(size) for size in (*u.shape, rate.shape[0]))
    elements = CPU_ELEMENTS if u.device.type == "cpu" else DEVICE_ELEMENTS
    length = max(1, elements // max(1, batch * channels * states))
    return [slice(first, min(first + length, tokens)) for first in range(0, tokens, length)]


def _tokens_first(x: Float[Tensor, "b n d"]) -> Float[Tensor, "n b d"]:
    return x.transpose(0, 1)
