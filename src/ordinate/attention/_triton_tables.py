"""The Triton backends' way for schemes without a bias or with one that depends on positions alone: T5, FIRE ..."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ordinate.attention._backend import AttentionCall, offset_bias_unsupported
from ordinate.attention._double_backward import TableCall, curve_formula, table_formula
from ordinate.attention._proof_structure import is_decoding
from ordinate.core.geometry import Geometry
from ordinate.ops.blocks import offset_geometry, visible_offsets
from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.log_bias import LogBias
from ordinate.ops.triton import operators
from ordinate.ops.triton.availability import MAX_PROGRAMS
from ordinate.schemes._fast_forms import log_bias_of, reach_of, slopes_of
from ordinate.schemes._scheme import Placed

# pieces of a curve whose sums a program holds
MAX_PIECES = 256
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
        lines: where it is a curve, of each head the rate and the levels and slopes of its pieces, float32. Or None.
        shares: factors of the logarithms of a curve (1 or batch, queries), float32. Or None.
        knots: where its pieces meet, as many as pieces, the last infinite. Or None.
        first: memory offset of the first entry of the table, from that of all offsets.
        far: whether there are pairs beyond its ends.
    """

    table: Tensor | None = None
    slopes: Tensor | None = None
    lines: Tensor | None = None
    shares: Tensor | None = None
    knots: Tensor | None = None
    first: int = 0
    far: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """What a kernel distinguishes: see `Backend.proof_kind`."""
        if self.knots is not None:
            return (f"a curve of up to {len(self.knots)} pieces",)
        if self.slopes is not None:
            return ("linear",)
        return ("pairs beyond the table",) if self.far else ()


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


def bias_tensors(call: AttentionCall) -> tuple[Tensor | None, ...]:
    """Table, slopes, sinks, and lines and shares of a curve as the kernels take them."""
    bias, sinks = bias_of(call.at), call.score_options.sinks
    table = None if bias.table is None else bias.table.expand(call.q.shape[1], -1).contiguous()
    slopes = None if bias.slopes is None else bias.slopes.to(call.q.device)
    lines = None if bias.lines is None else bias.lines.expand(call.q.shape[1], -1).contiguous()
    return table, slopes, None if sinks is None else sinks.float().contiguous(), lines, bias.shares


def biases_unsupported(call: AttentionCall) -> str | None:
    """Return why the bias is neither a function of the offset in memory order nor a curve; None if it is."""
    reason = offset_bias_unsupported(call)
    if reason is None or {"score", "content_bias", "value_bias"} & set(call.at.scheme.hooks):
        return reason
    return reason if _curve_of(call.at) is None else None


def too_many_heads(call: AttentionCall) -> str | None:
    """Return why a GPU has no grid for the heads of all sequences; None if it has."""
    if call.q.shape[0] * call.q.shape[1] > MAX_PROGRAMS:
        return f"batch times heads is above {MAX_PROGRAMS}: compute the sequences in several parts"
    return None


def tables_attention(call: AttentionCall, forward: Forward, backward: Backward) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp in units of log2 by an operator and that of its gradients."""
    setting = _setting(call)._replace(forward=forward, backward=backward)
    fixed = call.where.q_document, call.where.k_document, bias_of(call.at).knots
    return _Attention.apply(setting, call.q, call.k, call.v, *bias_tensors(call), *fixed)


def tables_decoding(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Return them for a few queries, without gradients."""
    fixed = call.where.q_document, call.where.k_document, None
    setting, others = _setting(call), (*bias_tensors(call), *fixed)
    return operators.decode(call.q, call.k, call.v, others, setting.structure, setting.numbers)


def _setting(call: AttentionCall) -> Setting:
    where, bias = call.where, bias_of(call.at)
    structure = int(where.is_causal), where.start, where.window or 0, where.shape[0] - 1 - bias.first, int(bias.far)
    numbers = call.scale, call.score_options.softcap or 0.0
    return Setting(structure, numbers, where, bias.first, operators.attention, operators.attention_backward)


def bias_of(at: Placed) -> Bias:
    """Return the bias of a placed scheme, which its layers share."""
    if "bias" not in at.scheme.hooks:
        return Bias()
    return at.cached("bias of triton", lambda: _made_bias(at))


def _made_bias(at: Placed) -> Bias:
    """Evaluate the slopes, the curve, or the bias at the offsets that are visible and at which it changes."""
    where = at.where
    slopes = slopes_of(at.scheme, where)
    if slopes is not None:
        return Bias(slopes=slopes.float().contiguous())
    curve = _curve_of(at)
    if curve is not None:
        return _arranged(curve)
    first, stop, far = visible_offsets(where, reach_of(at.scheme))
    made = at.scheme.bias(offset_geometry(where, first, stop))
    if made is None:
        return Bias()
    return Bias(made[0, :, 0].float().contiguous(), first=first, far=far)


def _curve_of(at: Placed) -> LogBias | None:
    """Return the curve that the bias is, if the kernels have it; those of decoding do not."""
    where = at.where
    if is_decoding(where) or not where.consecutive or where.q_pos.shape[-1] > 1:
        return None
    made = at.cached("curve of triton", lambda: log_bias_of(at.scheme, where))
    return made if made is not None and len(made.pieces.knots) < MAX_PIECES else None


def _arranged(made: LogBias) -> Bias:
    """Arrange the numbers of a curve as the kernels take them: as many pieces as a power of two."""
    rates, shares, (knots, levels, slopes) = made
    pieces = 1 << (levels.shape[1] - 1).bit_length()
    levels, slopes = (nn.functional.pad(x, (0, pieces - x.shape[1])) for x in (levels, slopes))
    lines = torch.cat([rates[:, None].expand(len(levels), 1), levels, slopes], 1)
    knots = nn.functional.pad(knots.detach(), (0, pieces - len(knots)), value=math.inf)
    return Bias(
        lines=lines.float().contiguous(), shares=shares.float().contiguous(), knots=knots.float().contiguous()
    )


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
            return (None,) * 12
        # read once, as checkpointing allows
        kept = ctx.saved_tensors
        inputs, fixed, results = kept[:8], kept[8:11], kept[11:]
        needed = ctx.needs_input_grad[1:9]
        setting, learned = ctx.setting, any((*needed[3:5], *needed[6:]))

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            saved = [*inputs[:3], *results]
            others = [*inputs[3:], *fixed]
            made = setting.backward(gradient, saved, others, setting.structure, setting.numbers, learned)
            return tuple(x if need else None for x, need in zip(made, needed, strict=True))

        if torch.compiler.is_compiling():
            return None, *fast(grad_outputs[0]), None, None, None
        return None, *gradients(fast, _formula(setting, fixed[2]), inputs, grad_outputs[:1]), None, None, None


def _formula(setting: Setting, knots: Tensor | None) -> Any:
    """The plain formula of q, k, v, the biases and sinks, in blocks of queries, for second derivatives."""
    where, (scale, cap) = setting.where, setting.numbers
    call = TableCall(where, scale, cap or None, setting.first)

    def formula(given: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
        q, k, v, table, slopes, sinks, lines, shares = given
        if knots is not None:
            return curve_formula(call, knots)((q, k, v, sinks, lines, shares), upstream)
        if slopes is None:
            table = q.new_zeros(q.shape[1], 1) if table is None else table
            return table_formula(call)((q, k, v, table, sinks), upstream)
        offset = torch.arange(1 - where.shape[0], where.shape[1], device=q.device) - where.start
        table = slopes[1][:, None] * offset.clamp(min=0).neg() + slopes[0][:, None] * offset.clamp(max=0)
        parts = list(table_formula(call)((q, k, v, table, sinks), upstream))
        # one part: parts would share the graph of the table, which is freed after the first
        return [((torch.cat([out for (out,), _ in parts], 2),), upstream)]

    return formula
