"""Attention by the C++ kernel, as an autograd function: shared by the backends that call it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, ScoreOptions, attention_weights
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.attention._workspace import peak_and_rest
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, OffsetTable, Outputs, Queries, Values, Weights
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.blocks import query_blocks
from ordinate.ops.decay_cutoff import KeyRanges, relevant_keys
from ordinate.ops.double_backward import Formula, gradients, in_one
from ordinate.ops.heads import repeat_keys
from ordinate.ops.native import attention
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.schemes._held import apart


class NativeResults(NamedTuple):
    """What the forward pass of the kernel keeps for the backward pass.

    Args:
        out: the outputs, in the dtype of the kernel, perhaps with one more channel.
        softmax: largest score and inverse sum of each query.
        lost: rounding errors of outputs in bfloat16; None: not needed.
    """

    out: Outputs
    softmax: attention.Softmax
    lost: attention.RoundingErrors | None

    @classmethod
    def empty(cls, q: Queries, v: Values, *, learned: bool) -> "NativeResults":
        """Return memory for the results of all queries, with outputs of their dtype."""
        out = q.new_empty(*q.shape[:3], v.shape[3])
        lost = q.new_empty(out.shape, dtype=torch.int8) if learned and q.dtype == torch.bfloat16 else None
        return cls(out, q.new_empty(2, *q.shape[:3], dtype=torch.float32), lost)

    def take(self, rows: slice, made: "NativeResults") -> bool:
        """Copy what the kernel has made of a range of queries; return False where its outputs have another form."""
        if made.out.dtype != self.out.dtype or made.out.shape[3] != self.out.shape[3]:
            return False
        self.softmax[..., rows] = made.softmax
        if self.lost is not None and made.lost is not None:
            self.lost[:, :, rows] = made.lost
        return True

    def rows(self, rows: slice) -> "NativeResults":
        """Return those of a range of queries, as the kernel reads them."""
        lost = None if self.lost is None else self.lost[:, :, rows].contiguous()
        return NativeResults(self.out[:, :, rows].detach(), self.softmax[..., rows].contiguous(), lost)


def native_attention(
    call: AttentionCall,
    table: OffsetTable | None,
    bias: Bias | None = None,
    with_weights: bool = False,
    known: NativeResults | None = None,
) -> tuple[Outputs, Weights | None]:
    """Compute attention with a bias by offset and one of each pair, in place of those of the call's scheme.

    Args:
        call: the call.
        table: bias by memory offset; None: no such bias.
        bias: bias of each pair, float32, without a soft cap; one for all sequences or heads is broadcast.
        with_weights: whether the attention weights are returned too, in float32, with gradients.
        known: results of an earlier forward pass of the same call, not computed again; None: there are none.
    """
    inputs, scoring = _prepared(call, table, bias)
    out, weights = _Native.apply(*inputs, (call.where, scoring, with_weights, known))
    return out[..., : call.v.shape[3]].to(call.q.dtype), weights


def native_results(
    call: AttentionCall, table: OffsetTable | None, bias: Bias | None, *, with_weights: bool, learned: bool
) -> tuple[NativeResults, Weights | None]:
    """Run the forward pass as `native_attention` does, without autograd, and return what its backward pass needs.

    Args:
        call: the call.
        table: bias by memory offset.
        bias: bias of each pair.
        with_weights: whether the attention weights are returned too.
        learned: whether a bias or the sinks need gradients.
    """
    inputs, scoring = _prepared(call, table, bias)
    return _forward(inputs, call.where, scoring, with_weights, learned)[:2]


def _prepared(
    call: AttentionCall, table: OffsetTable | None, bias: Bias | None
) -> tuple[tuple[Queries, Keys, Values, OffsetTable, Tensor | None, Bias | None], attention.Scoring]:
    """Return q, k, v, table, sinks and bias as the kernel reads them, and the options of the scores."""
    table = masked_table(table, call.where, call.q.shape[1], torch.float32)
    q, k, v = (_laid_out(x) for x in (call.q, call.k, call.v))
    sinks = None if call.score_options.sinks is None else call.score_options.sinks.float().contiguous()
    bias = None if bias is None else contiguous_channels(bias)
    return (q, k, v, table, sinks, bias), attention.Scoring(call.scale, call.score_options.softcap)


def _forward(
    inputs: Sequence[Tensor | None], where: Geometry, scoring: attention.Scoring, with_weights: bool, learned: bool
) -> tuple[NativeResults, Weights | None, KeyRanges]:
    """Run the kernel: results, weights, and the ranges of keys that it read."""
    q, k, v, table, sinks, bias = cast(tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None], inputs)
    table, sizes, span = table.contiguous(), (*q.shape[:3], k.shape[2]), _ranges(q, k, table, bias, where, scoring)
    weights = table.new_zeros(sizes) if with_weights else None
    scoring = scoring._replace(sinks=sinks, bias=None if bias is None else bias.expand(sizes), weights=weights)
    made = attention.forward(q, k, v, table, where, scoring, span, learned)
    return NativeResults(*made), weights, span


def _ranges(
    q: Queries, k: Keys, table: OffsetTable, bias: Bias | None, where: Geometry, scoring: attention.Scoring
) -> KeyRanges:
    # of the keys of one block few could be left out
    cut = bias is None and k.shape[2] > attention.ROWS
    return _span(q, k, table, where, scoring if cut else None)


def native_workspace(call: AttentionCall, bias: Bias | None = None) -> int:
    """Return the memory of the forward pass beyond inputs and output, without biases of pairs and weights [bytes].

        most of  what tables, copies and ranges of keys hold while they are made, before there is an output
            and  what is left of these + 8 heads queries + queries e of rounding errors + buffers of the threads

    What is made before the kernel runs is made here, too, and counted.

    Args:
        call: the call.
        bias: bias of each pair, with which no keys are looked for that could be left out; None: there is none.
    """
    type, result = _type(call.q), math.prod(call.q.shape[:3]) * call.v.shape[3] * call.q.element_size()
    at = apart(call.at)

    def prepared() -> tuple[Any, ...]:
        table = masked_table(at.offset_table, call.where, call.q.shape[1], torch.float32)
        q, k, v = (_laid_out(x) for x in (call.q, call.k, call.v))
        with torch.no_grad():
            laid, scoring = table.contiguous(), attention.Scoring(call.scale, call.score_options.softcap)
            span = _ranges(q, k, laid, bias, call.where, scoring)
            return table, laid, q, k, v, span, attention.documents_of(call.where, q.shape[0])

    peak, rest = peak_and_rest(prepared, call.where.shape[0])
    rows = math.prod(call.q.shape[:3])
    # the output in another dtype, or with one more channel
    out = rows * (call.v.shape[3] + call.v.shape[3] % 2 * attention.multiplies(type)) * type.itemsize
    lost = rows * call.v.shape[3] if type == torch.bfloat16 and _is_learned(call, bias) else 0
    return max(peak - result, rest + out - result + 8 * rows + lost + _buffers(call))


def _buffers(call: AttentionCall) -> int:
    return kernel_buffers(
        math.prod(call.q.shape[:2]), call.where.shape, (call.k.shape[3], call.v.shape[3]), _type(call.q)
    )


def kernel_buffers(heads: int, tokens: tuple[int, int], widths: tuple[int, int], type: torch.dtype) -> int:
    """Return what the threads of the C++ kernel hold; a thread without any block holds nothing [bytes].

        threads [keys (d + e) size + 4 tile + size tile if 16 bits + 4 rows e]

    The size is that of an operand of the products. With fewer heads than threads, heads are split into blocks.

    Args:
        heads: heads of all sequences.
        tokens: number of queries and of keys.
        widths: channels of a key, d, and of a value, e.
        type: dtype that the kernel reads.
    """
    (queries, keys), (width, wide) = tokens, widths
    size, tile = type.itemsize if attention.multiplies(type) else 4, attention.ROWS * attention.COLUMNS
    held = size * keys * (width + wide) + (4 if size == 4 else 6) * tile + 4 * attention.ROWS * wide
    threads = torch.get_num_threads()
    blocks = 1 if heads >= threads else -(-queries // attention.ROWS)
    return min(threads, heads * blocks) * held


def _is_learned(call: AttentionCall, bias: Bias | None) -> bool:
    """Whether a bias or the sinks have gradients, which need the rounding errors of a bfloat16 output."""
    held = call.at.offset_table, call.score_options.sinks, bias
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in held)


def unsupported(call: AttentionCall) -> str | None:
    """Return why the kernel cannot compute such calls, whatever their values and biases: device, dtype, dropout."""
    if not on_cpu(call.q):
        return "only CPUs are supported"
    if torch.compiler.is_compiling():
        return "torch.compile cannot trace it"
    if call.q.dtype == torch.float64:
        return "float64 is not supported"
    if call.dropout:
        return "dropout is not supported"
    return "a tensor is empty" if 0 in call.q.shape or 0 in call.v.shape else None


def unfit(call: AttentionCall) -> str | None:
    """Return why the values are not supported: the fast exponentials in C++ would turn NaN into a finite number."""
    sinks = call.score_options.sinks
    if sinks is not None and not sinks.isfinite().all():
        return "a sink is not finite"
    if call.overflow_reason is not None:
        return call.overflow_reason
    return None if call.score_bound < torch.finfo(torch.float32).max else "scores may overflow float32"


def stays_in_range(call: AttentionCall, largest: float) -> bool:
    """Whether scores with a bias up to this number cannot overflow float32; not for NaN. A bias of -inf hides a key.

    Args:
        call: the call.
        largest: the largest number of the bias.
    """
    # a NaN compares as false
    return call.score_bound + largest < torch.finfo(torch.float32).max


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor,
        sinks: Tensor | None,
        bias: Tensor | None,
        setting: tuple[Geometry, attention.Scoring, bool, NativeResults | None],
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.where, ctx.scoring, with_weights, known = setting
        learned, inputs, weights = any(ctx.needs_input_grad[3:6]), (q, k, v, table, sinks, bias), None
        if known is None:
            known, weights, ctx.span = _forward(inputs, ctx.where, ctx.scoring, with_weights, learned)
        else:
            ctx.span = _ranges(q, k, table.contiguous(), bias, ctx.where, ctx.scoring)
        ctx.save_for_backward(*inputs, known.out, weights, known.softmax, known.lost)
        return known.out, weights

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        *inputs, out, weights, softmax, lost = ctx.saved_tensors

        def fast(gradient: Tensor | None, to_weights: Tensor | None) -> Sequence[Tensor | None]:
            q, k, v, table, sinks, bias = inputs
            wide = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
            scoring = ctx.scoring._replace(sinks=sinks, bias=wide, weights=weights)
            # the backward kernel has keys in rows, so it reads the table in reverse only
            saved = q, k, v, table.flip(1), out, softmax, lost
            above = (
                torch.zeros_like(out) if gradient is None else _laid_out(gradient),
                None if to_weights is None else to_weights.contiguous(),
            )
            to_bias = table.new_zeros(*q.shape[:3], k.shape[2]) if ctx.needs_input_grad[5] else None
            learned = ctx.needs_input_grad[3], to_bias
            made = attention.backward(above, saved, ctx.where, scoring, ctx.span, learned)
            return made if made.bias is None else made._replace(bias=made.bias.sum_to_size(bias.shape))

        plain = _formula(ctx.where, ctx.scoring, inputs[5] is not None)
        return *gradients(fast, plain, inputs, grad_outputs), None


def _formula(where: Geometry, scoring: attention.Scoring, biased: bool) -> Formula:
    """Return the plain formula of q, k, v, table, sinks and bias: of the output, with a bias of the weights too."""
    if not biased:
        by_offset = table_formula(TableCall(where, scoring.scale, scoring.softcap))
        return lambda inputs, upstream: by_offset(inputs[:5], upstream)

    def attend(*tensors: Any) -> Sequence[Tensor]:
        return _plain(where, scoring.scale, *tensors)

    return in_one(attend)


def plain_attention(call: AttentionCall, table: OffsetTable | None, bias: Bias | None) -> tuple[Outputs, Weights]:
    """Compute what `native_attention` does by the formula; NaN and infinity of a bias reach the rows that see them.

    Args:
        call: the call.
        table: bias by memory offset; None: no such bias.
        bias: bias of each pair; None: no such bias.
    """
    table = masked_table(table, call.where, call.q.shape[1], torch.float32)
    return _plain(call.where, call.scale, call.q, call.k, call.v, table, call.score_options.sinks, bias)


def _plain(
    where: Geometry,
    scale: float,
    q: Queries,
    k: Keys,
    v: Values,
    table: OffsetTable,
    sinks: Tensor | None,
    bias: Bias | None,
) -> tuple[Outputs, Weights]:
    k, v = (repeat_keys(x, q.shape[1]).float() for x in (k, v))
    row, column = (torch.arange(size, device=q.device) for size in where.shape)
    scores = q.float() @ k.mT * scale + table[:, column - row[:, None] + where.shape[0] - 1]
    weights = attention_weights(scores if bias is None else scores + bias, where.visible, ScoreOptions(sinks=sinks))
    return (weights @ v).to(q.dtype), weights


def _span(q: Tensor, k: Tensor, table: Tensor, where: Geometry, scoring: attention.Scoring | None) -> KeyRanges:
    """Return the range of keys of each block of queries, without keys of negligible weight if `scoring` is given."""
    cuts = [block.keys for block in query_blocks(where, attention.ROWS)]
    sides = [x.start for x in cuts], [x.stop for x in cuts]
    ends = [torch.tensor(side, device=q.device).expand(*q.shape[:2], -1) for side in sides]
    if scoring is None:
        return ends[0].contiguous(), ends[1].contiguous()
    capped = scoring.softcap is not None
    found = relevant_keys(q, k, table, where, scoring.scale, attention.ROWS, capped=capped)
    if found is None:
        return ends[0].contiguous(), ends[1].contiguous()
    return found[0].maximum(ends[0]), found[1].minimum(ends[1])


def _type(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype == torch.bfloat16 else torch.float32


def _laid_out(x: Tensor) -> Tensor:
    """Convert to a dtype that the kernel reads, with contiguous channels, an even number for products in bfloat16."""
    x = x.to(_type(x))
    if x.dtype == torch.bfloat16 and attention.multiplies(x.dtype) and x.shape[-1] % 2:
        x = torch.nn.functional.pad(x, (0, 1))
    lies_well = x.stride(3) == 1 and x.stride(2) >= x.shape[3]
    return x if lies_well else x.clone(memory_format=torch.contiguous_format)
