"""Attention by Triton kernels on GPUs: no bias, one by offset, or a vector for each offset (Shaw, DeBERTa ...)."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.attention._proof import unproved_reason
from ordinate.attention._proof_case import FEW_QUERIES, is_decoding
from ordinate.attention._sdpa import needs_no_mask
from ordinate.attention._triton_vectors import (
    depends_on_content,
    vectors_attention,
    vectors_bytes,
    vectors_unsupported,
    vectors_without_configuration,
)
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import LogSumExp, Outputs
from ordinate.ops.blocks import offset_geometry, visible_offsets
from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.triton import operators
from ordinate.ops.triton.availability import unavailable_reason
from ordinate.ops.triton.decay import STEP
from ordinate.ops.triton.tiles import TILES, device_class, tiles
from ordinate.schemes._scheme import Placed

# widest heads of the kernels
MAX_CHANNELS = 256
TYPES = (torch.float32, torch.float16, torch.bfloat16)


class Triton(Backend):
    """Tiled attention with an online softmax in Triton, on GPUs: no bias, one by offset, or vectors by offset.

    A table of biases is read near the diagonal only, if the scheme says beyond which distance it is constant
    (`bias_reach`); a bias that is linear in the distance is computed (`linear_bias`). Scores, softmax and sums are
    float32. The backward pass is deterministic: no atomic additions. NaN and infinity make the rows that see them
    NaN, and no others, without looking at values on the host.

    Its numbers are tested in Triton's interpreter and on an NVIDIA H200, its code for other GPUs by compilers alone.
    On a GPU it is used only after it has agreed with the reference there (`ordinate.attention._proof`).

    At most 16 queries beside more keys, without gradients, are a decoding step: the keys are split among programs,
    whose results are put together by their log-sum-exp (`ordinate.ops.triton.decode`).

    Schemes with a vector for each offset (`Scheme.relative_vectors`: Shaw, Transformer-XL, DeBERTa, Music
    Transformer) have kernels of their own (`ordinate.ops.triton.bands`), which read a band of vectors for each tile.
    """

    priority = 150
    supported_options = frozenset({"softcap", "sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices and dtypes, other biases, dropout, empty inputs, wide heads, and what is unproved."""
        contents = depends_on_content(call.at)
        unsupported = vectors_unsupported if contents else offset_bias_unsupported
        reason = unavailable_reason(call.q.device) or _unfit(call) or unsupported(call)
        if reason is not None or call.q.device.type != "cuda":
            return reason
        if contents and is_decoding(call.where):
            return "the content-dependent bias of a decoding step is small, and there are no kernels for it"
        narrow = vectors_without_configuration(call) if contents else None
        if narrow is not None:
            return narrow
        if needs_no_mask(call) and not call.score_options.in_use and not is_decoding(call.where):
            return "PyTorch's fused kernels need no mask for it"
        if device_class(call.q.device) not in TILES:
            return "there are no configurations of the kernels for this GPU"
        return unproved_reason("triton", call)

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the autograd function around the operators."""
        return _computed(call)[0]

    def run_with_lse(self, call: AttentionCall) -> tuple[Outputs, LogSumExp]:
        """Apply it, and convert the log-sum-exp from units of log2."""
        out, lse = _computed(call)
        return out, lse * math.log(2)

    def way(self, call: AttentionCall) -> str | None:
        """Tiles of queries, with bands of vectors or not, or for a decoding step without gradients chunks of keys."""
        if depends_on_content(call.at):
            return "tiles of queries, with a band of vectors by offset for each"
        if not is_decoding(call.where):
            return "tiles of queries"
        if _is_learned(call.q, call.k, call.v, *_bias_tensors(call)):
            return "tiles of queries: gradients are needed"
        return f"chunks of keys: at most {FEW_QUERIES} queries beside more keys, without gradients"

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Log-sum-exp of the queries, one number for each key, ranges of document tiles, and tables of biases; of a
        decoding step outputs and log-sum-exp of each chunk of keys in place of the numbers of keys; of a bias that is
        linear in the distance the bounds by which keys are left out.
        """
        if depends_on_content(call.at):
            return vectors_bytes(call)
        held = sum(4 * x.numel() for x in (_bias(call.at).table, _bias(call.at).slopes) if x is not None)
        batch, heads, queries, width = call.q.shape
        keys, depth = call.where.shape[1], call.v.shape[3]
        documents = 0 if call.where.q_document is None else 24 * batch * sum(call.where.shape)
        numbers = batch * call.k.shape[1] * keys
        if is_decoding(call.where) and not _is_learned(call.q, call.k, call.v, *_bias_tensors(call)):
            size = tiles(device_class(call.q.device), call.q.dtype, max(width, depth)).decoding.chunk
            numbers = batch * heads * queries * -(-keys // size) * (depth + 1)
        elif _bias(call.at).slopes is not None and call.where.is_causal and not documents:
            # eight numbers of each query, and products with the own key in pieces
            held += batch * heads * (32 * queries + min(queries, STEP) * width * call.q.element_size())
        return 4 * (batch * heads * queries + numbers) + documents + held


class Bias(NamedTuple):
    """The bias of a placed scheme as the kernels take it.

    Args:
        table: by memory offset (heads or 1, entries), float32; offsets beyond its ends have its ends. Or None.
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
    """

    structure: tuple[int, ...]
    numbers: tuple[float, float]
    where: Geometry
    first: int


def _unfit(call: AttentionCall) -> str | None:
    if call.q.dtype not in TYPES:
        return f"{str(call.q.dtype).removeprefix('torch.')} is not supported"
    if call.dropout:
        return "dropout is not supported"
    if 0 in call.q.shape or 0 in call.v.shape:
        return "a tensor is empty"
    if max(call.q.shape[3], call.v.shape[3]) > MAX_CHANNELS:
        return f"a head has more than {MAX_CHANNELS} channels"
    return None


def _is_learned(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _bias_tensors(call: AttentionCall) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Table, slopes and sinks as the kernels take them."""
    bias, sinks = _bias(call.at), call.score_options.sinks
    table = None if bias.table is None else bias.table.expand(call.q.shape[1], -1).contiguous()
    slopes = None if bias.slopes is None else bias.slopes.to(call.q.device).contiguous()
    return table, slopes, None if sinks is None else sinks.float().contiguous()


def _computed(call: AttentionCall) -> tuple[Tensor, Tensor]:
    return vectors_attention(call) if depends_on_content(call.at) else _attention(call)


def _attention(call: AttentionCall) -> tuple[Tensor, Tensor]:
    where, bias, tensors = call.where, _bias(call.at), _bias_tensors(call)
    structure = int(where.is_causal), where.start, where.window or 0, where.shape[0] - 1 - bias.first, int(bias.far)
    setting = Setting(structure, (call.scale, call.score_options.softcap or 0.0), where, bias.first)
    documents = where.q_document, where.k_document
    if is_decoding(where) and not _is_learned(call.q, call.k, call.v, *tensors):
        return operators.decode(call.q, call.k, call.v, (*tensors, *documents), structure, setting.numbers)
    return _Attention.apply(setting, call.q, call.k, call.v, *tensors, *documents)


def _bias(at: Placed) -> Bias:
    if "bias" not in at.scheme.hooks:
        return Bias(None, None, 0, False)
    return at.cached("bias of triton", lambda: _made_bias(at))


def _made_bias(at: Placed) -> Bias:
    """Evaluate the slopes, or the bias at the offsets that are visible and at which it changes."""
    slopes, where = at.scheme.linear_bias(), at.where
    if slopes is not None:
        return Bias(None, slopes.float(), 0, False)
    first, stop, far = visible_offsets(where, at.scheme.bias_reach)
    made = at.scheme.bias(offset_geometry(where, first, stop))
    if made is None:
        return Bias(None, None, 0, False)
    return Bias(made[0, :, 0].float(), None, first, far)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, setting: Setting, q: Tensor, k: Tensor, v: Tensor, *others: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        out, lse = operators.attention(q, k, v, others, setting.structure, setting.numbers)
        ctx.setting = setting
        ctx.save_for_backward(q, k, v, *others, out, lse)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        *tensors, out, lse = ctx.saved_tensors
        inputs, documents = tensors[:6], tensors[6:]
        setting, learned = ctx.setting, ctx.needs_input_grad[4] or ctx.needs_input_grad[5]

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            saved = [*inputs[:3], out, lse]
            others = [*inputs[3:], *documents]
            made = operators.attention_backward(gradient, saved, others, setting.structure, setting.numbers, learned)
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
