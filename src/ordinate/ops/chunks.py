"""Causal linear attention in chunks: time and memory are linear in the sequence length."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.devices import on_gpu
from ordinate.core.shapes import LogSumExp, Outputs, Queries
from ordinate.ops.custom_operator import custom_operator
from ordinate.ops.double_backward import gradients, in_one, untraceable
from ordinate.ops.native.scan import check_shapes
from ordinate.ops.scalar_decay import by_triton

# chunk length: this one stays in a CPU's L1/L2 cache; on other devices fewer, longer steps are faster [tokens]
CPU_CHUNK, DEVICE_CHUNK = 64, 512
Sums = Float[Tensor, "b h d e"]
Peaks = Float[Tensor, "b h places"]


@custom_operator("v", "state")
def linear_attention(
    q: Queries, k: Float[Tensor, "b h i d"], v: Float[Tensor, "b h i e"], state: Sums, peaks: Peaks | None = None
) -> tuple[Outputs, Sums]:
    """Causal linear attention: unnormalised outputs from feature maps of queries and keys, and the final state.

        out_i = q_i S_i,   S_i = S_0 + sum over j <= i of k_j v_j^T,   S_0: `sums`

    With `peaks`, keys and states are stored divided by e^peak, a running maximum that prevents overflow:

        out_i = q_i S_i,   S_i = e^(peak_(i-1) - peak_i) S_(i-1) + k_i v_i^T

    Later tokens contribute exactly 0 to earlier ones. All inputs have gradients except the peaks.

    Args:
        q: feature map of the queries.
        k: feature map of the keys.
        v: values.
        state: the state S_0 left by earlier tokens.
        peaks: logarithms of the factors by which `sums` (the first entry) and each key are divided; non-decreasing.
            None: 0.

    Returns:
        A row for each query, and the state after the last token.
    """
    batch, heads, tokens, width = q.shape
    depth = v.shape[3]
    check_shapes(k=(k, q.shape), v=(v, (*q.shape[:3], depth)), state=(state, (batch, heads, width, depth)))
    if tokens == 0:
        return v, state
    found = by_triton(q, k, v, _logs(q, peaks), state) if on_gpu(q) else None
    if found is not None:
        return found
    known = None if peaks is None else peaks.detach().flatten(0, 1)
    make = _plain_chunks if untraceable(q) else _Chunks.apply
    out, sums_after = make(q, k, v, state.flatten(0, 1), known)
    return out, sums_after.unflatten(0, q.shape[:2])


def safe_divide(sums: Outputs, total: LogSumExp) -> Outputs:
    """Divide sums of weighted values by the total weight; 0, with gradient 0, where that is subnormal or 0."""
    return sums / total.masked_fill(total < torch.finfo(total.dtype).tiny, torch.inf)[..., None]


@dataclass(frozen=True)
class _Fade:
    """Factors by which stored numbers shrink as the running peak grows within a chunk.

    Args:
        pairs: from each key to each later query of the chunk; 0 for earlier queries (the causal mask).
        enter: from the state before the chunk to each query.
        leave: from each key to the state after the chunk.
        keep: from the state before the chunk to that after it.
    """

    pairs: Tensor
    enter: Tensor | float = 1.0
    leave: Tensor | float = 1.0
    keep: Tensor | float = 1.0


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sums: Tensor, peaks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        out, before = _beside(q, v.shape[3]), []
        for rows in _cuts(q):
            (a, b, c), fade = _taken(rows, q, k, v), _fade(q, peaks, rows)
            before.append(sums)
            entered = torch.bmm(a, sums).mul_(fade.enter)
            read = entered.baddbmm_(torch.bmm(a, b.mT).mul_(fade.pairs), c)
            out[:, :, rows] = read.unflatten(0, q.shape[:2])
            sums = torch.baddbmm(sums * fade.keep, b.mT, c * fade.leave)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, peaks, *before)
        return out, sums

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        q, k, v, peaks, *before = ctx.saved_tensors
        plain = in_one(lambda q, k, v, start: _plain_chunks(q, k, v, start, peaks))
        fast = partial(_gradients, (q, k, v, peaks), before)
        # the first of the states is an input
        return *gradients(fast, plain, (q, k, v, before[0]), grad_outputs), None


def _gradients(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None],
    before: list[Tensor],
    gradient: Tensor | None,
    after: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the gradients of q, k, v and the first state."""
    q, k, v, peaks = inputs
    gradient = torch.zeros_like(_beside(q, v.shape[3])) if gradient is None else gradient
    after = torch.zeros_like(before[0]) if after is None else after
    made = [_beside(x, x.shape[3]) for x in (q, k, v)]
    for rows, sums in zip(reversed(_cuts(q)), reversed(before), strict=True):
        (a, b, c, up), fade = _taken(rows, q, k, v, gradient), _fade(q, peaks, rows)
        pairs, slopes = torch.bmm(a, b.mT).mul_(fade.pairs), torch.bmm(up, c.mT).mul_(fade.pairs)
        entered = up * fade.enter
        dq = torch.baddbmm(torch.bmm(slopes, b), entered, sums.mT)
        dk = torch.baddbmm(torch.bmm(slopes.mT, a), c * fade.leave, after.mT)
        dv = torch.bmm(pairs.mT, up).add_(torch.bmm(b, after).mul_(fade.leave))
        for whole, part in zip(made, (dq, dk, dv), strict=True):
            whole[:, :, rows] = part.unflatten(0, q.shape[:2])
        after = torch.baddbmm(after * fade.keep, a.mT, entered)
    return *made, after


def _logs(q: Queries, peaks: Peaks | None) -> Float[Tensor, "b h i"]:
    """Log decays of the states as the running maximum grows."""
    if peaks is None:
        return q.new_zeros(()).expand(q.shape[:3])
    known = peaks.detach()
    return known[:, :, :-1] - known[:, :, 1:]


def _plain_chunks(q: Tensor, k: Tensor, v: Tensor, sums: Tensor, peaks: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same by operations that autograd can trace."""
    outs = []
    for rows in _cuts(q):
        (a, b, c), fade = _taken(rows, q, k, v), _fade(q, peaks, rows)
        outs.append(a @ sums * fade.enter + (a @ b.mT * fade.pairs) @ c)
        sums = sums * fade.keep + b.mT @ (c * fade.leave)
    return torch.cat(outs, 1).unflatten(0, q.shape[:2]), sums


def _cuts(q: Tensor) -> list[slice]:
    length = CPU_CHUNK if q.device.type == "cpu" else DEVICE_CHUNK
    return [slice(begin, min(begin + length, q.shape[2])) for begin in range(0, q.shape[2], length)]


def _taken(rows: slice, *tensors: Tensor) -> list[Tensor]:
    """Slice out these tokens with batch and heads flattened, as contiguous operands for bmm."""
    return [x[:, :, rows].flatten(0, 1) for x in tensors]


def _beside(x: Queries, columns: int) -> Outputs:
    """Allocate (b, h, n, columns) stored as (b, n, h, columns), the layout that the output projection reads."""
    batch, heads, tokens, _ = x.shape
    return x.new_empty(batch, tokens, heads, columns).transpose(1, 2)


def _fade(q: Tensor, peaks: Tensor | None, rows: slice) -> _Fade:
    if peaks is None:
        size = rows.stop - rows.start
        return _Fade(q.new_ones(size, size).tril_())
    before, own = peaks[:, rows.start, None, None], peaks[:, rows.start + 1 : rows.stop + 1, None]
    last = own[:, -1:]
    return _Fade((own.mT - own).exp_().tril_(), (before - own).exp_(), (own - last).exp_(), (before - last).exp_())
