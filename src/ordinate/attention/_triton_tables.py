"""The Triton backends' way for schemes without a bias or with one by offset, such as T5 and ALiBi."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.core.geometry import Geometry
from ordinate.ops.blocks import offset_geometry, visible_offsets
from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.triton import operators
from ordinate.schemes._scheme import Placed

Forward = Callable[..., tuple[Tensor, ...]]
"""As `ordinate.ops.triton.operators.attention`."""
Backward = Callable[..., tuple[Tensor, ...]]
"""As `ordinate.ops.triton.operators.attention_backward`."""


class Bias(NamedTuple):
    """The bias of a placed scheme as the kernels take it.

    Args:
        table: by memory offset (heads or 1, entries), float32, contiguous; offsets beyond its ends have its ends. Or
            None.
        slopes: by which it falls with each token behind and ahead (2, heads), float32. Or None.
        first: memory offset of the first entry of the table, from that of all offsets.
        far: whether there are pairs beyond its ends.
    """

    table: Tensor | None
    slopes: Tensor | None
    first: int
    far: bool


class Setting(NamedTuple):
    """What the autograd function takes beside tensors.

    Args:
        structure: as the operators take it.
        numbers: likewise.
        where: the geometry.
        first: as in `Bias`.
        forward: the operator.
        backward: that of its gradients.
    """

    structure: tuple[int, ...]
    numbers: tuple[float, float]
    where: Geometry
    first: int
    forward: Forward
    backward: Backward


def is_learned(*tensors: Tensor | None) -> bool:
    """Whether one of the tensors needs a gradient."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def bias_tensors(call: AttentionCall) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Table, slopes and sinks as the kernels take them."""
    bias, sinks = bias_of(call.at), call.score_options.sinks
    table = None if bias.table is None else bias.table.expand(call.q.shape[1], -1).contiguous()
    slopes = None if bias.slopes is None else bias.slopes.to(call.q.device)
    return table, slopes, None if sinks is None else sinks.float().contiguous()


def tables_attention(call: AttentionCall, forward: Forward, backward: Backward) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp in units of log2 by an operator and that of its gradients."""
    setting = _setting(call)._replace(forward=forward, backward=backward)
    documents = call.where.q_document, call.where.k_document
    return _Attention.apply(setting, call.q, call.k, call.v, *bias_tensors(call), *documents)


def tables_decoding(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Return them for a few queries, without gradients."""
    setting, others = _setting(call), (*bias_tensors(call), call.where.q_document, call.where.k_document)
    return operators.decode(call.q, call.k, call.v, others, setting.structure, setting.numbers)


def _setting(call: AttentionCall) -> Setting:
    where, bias = call.where, bias_of(call.at)
    structure = int(where.is_causal), where.start, where.window or 0, where.shape[0] - 1 - bias.first, int(bias.far)
    numbers = call.scale, call.score_options.softcap or 0.0
    return Setting(structure, numbers, where, bias.first, operators.attention, operators.attention_backward)


def bias_of(at: Placed) -> Bias:
    """Return the bias of a placed scheme, which its layers share."""
    if "bias" not in at.scheme.hooks:
        return Bias(None, None, 0, False)
    return at.cached("bias of triton", lambda: _made_bias(at))


def _made_bias(at: Placed) -> Bias:
    """Evaluate the slopes, or the bias at the offsets that are visible and at which it changes."""
    where = at.where
    slopes = at.scheme.linear_bias(where)
    if slopes is not None:
        return Bias(None, slopes.float().contiguous(), 0, False)
    first, stop, far = visible_offsets(where, at.scheme.bias_reach)
    made = at.scheme.bias(offset_geometry(where, first, stop))
    if made is None:
        return Bias(None, None, 0, False)
    return Bias(made[0, :, 0].float().contiguous(), None, first, far)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, setting: Setting, q: Tensor, k: Tensor, v: Tensor, *others: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        out, lse, *kept = setting.forward(q, k, v, others, setting.structure, setting.numbers)
        ctx.setting = setting
        ctx.save_for_backward(q, k, v, *others, out, lse, *kept)
        ctx.mark_non_differentiable(lse)
        # zeros for the log-sum-exp would take a launch
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        if grad_outputs[0] is None:
            return (None,) * 9
        inputs, documents, results = ctx.saved_tensors[:6], ctx.saved_tensors[6:8], ctx.saved_tensors[8:]
        setting, learned = ctx.setting, ctx.needs_input_grad[4] or ctx.needs_input_grad[5]

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            saved = [*inputs[:3], *results]
            others = [*inputs[3:], *documents]
            made = setting.backward(gradient, saved, others, setting.structure, setting.numbers, learned)
            needed = ctx.needs_input_grad[1:7]
            return tuple(x if need else None for x, need in zip(made, needed, strict=True))

        if torch.compiler.is_compiling():
            return None, *fast(grad_outputs[0]), None, None
        return None, *gradients(fast, _formula(setting), inputs, grad_outputs[:1]), None, None


def _formula(setting: Setting) -> Any:
    """The plain formula of q, k, v, table, slopes and sinks, in blocks of queries, for second derivatives."""
    where, (scale, cap) = setting.where, setting.numbers
    call = TableCall(where, scale, cap or None, setting.first)

    def formula(given: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
        q, k, v, table, slopes, sinks = given
        if slopes is None:
            table = q.new_zeros(q.shape[1], 1) if table is None else table
            return table_formula(call)((q, k, v, table, sinks), upstream)
        offset = torch.arange(1 - where.shape[0], where.shape[1], device=q.device) - where.start
        table = slopes[1][:, None] * offset.clamp(min=0).neg() + slopes[0][:, None] * offset.clamp(max=0)
        parts = list(table_formula(call)((q, k, v, table, sinks), upstream))
        # one part: parts would share the graph of the table, which is freed after the first
        return [((torch.cat([out for (out,), _ in parts], 2),), upstream)]

    return formula
