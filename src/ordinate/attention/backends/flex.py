"""PyTorch's FlexAttention, compiled, on GPUs."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._block_mask import BLOCK, block_mask
from ordinate.attention._proof import unproved_reason
from ordinate.core.devices import on_gpu
from ordinate.core.shapes import LogSumExp, Outputs
from ordinate.schemes._score_mod import ScoreMod

# smallest head width of FlexAttention's kernels
MIN_CHANNELS = 16
# with fewer keys a mask of queries x keys is small, and not worth some seconds of compilation
MIN_KEYS = 1024


class Flex(Backend):
    """`torch.nn.attention.flex_attention`, compiled: a bias by offset without a queries x keys tensor, on GPUs.

    For calls that need a mask or a bias; others are faster by PyTorch's own attention, which needs no mask for them.
    It is compiled once for each form of call, in some seconds, and proves itself first (`ordinate.attention._proof`).
    The soft cap is applied to each score. A sink is added to the sum of exponentials afterwards:

        out = flex e^lse / (e^lse + e^sink) = flex sigmoid(lse - sink)
    """

    priority = 330
    supported_options = frozenset({"softcap", "sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, biases that depend on more than the offset, dropout, float64, and narrow heads."""
        if not on_gpu(call.q):
            return "only GPUs are supported"
        return unsupported_reason(call) or _needless(call) or unproved_reason("flex", call)

    def run(self, call: AttentionCall) -> Outputs:
        """Call FlexAttention, compiled once for each form of call."""
        return run_flex_attention(call, compile_for(_form(call)))[0]

    def run_with_lse(self, call: AttentionCall) -> tuple[Outputs, LogSumExp]:
        """Call FlexAttention, which computes the log-sum-exp anyway."""
        out, total = run_flex_attention(call, compile_for((*_form(call), "lse")), lse=True)
        if total is None:
            raise AssertionError("the log-sum-exp was asked for")
        return out, total.detach()

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Block mask of 128 x 128 pairs, both ways, the table of the bias, and a log-sum-exp for each query."""
        queries, keys = (-(-size // BLOCK) for size in call.where.shape)
        table = 4 * call.q.shape[1] * sum(call.where.shape) if "bias" in call.at.scheme.hooks else 0
        return 4 * (4 * call.where.batch_size * queries * keys + call.q.shape[:3].numel()) + table


def unsupported_reason(call: AttentionCall) -> str | None:
    """Return why FlexAttention does not support a call on any device; None if it does."""
    if torch.compiler.is_compiling():
        return "it is compiled separately, not inside torch.compile"
    if call.dropout:
        return "dropout is not supported"
    if call.q.dtype == torch.float64:
        return "float64 is not supported"
    if 0 in call.q.shape or 0 in call.k.shape:
        return "a tensor is empty"
    if min(call.q.shape[-1], call.v.shape[-1]) < MIN_CHANNELS:
        return f"a head has fewer than {MIN_CHANNELS} channels"
    return offset_bias_unsupported(call)


def run_flex_attention(
    call: AttentionCall, attention: Callable[..., Any], *, lse: bool = False
) -> tuple[Outputs, LogSumExp | None]:
    """Compute attention by `flex_attention`, or by its compiled form, given as `attention`; and the log-sum-exp.

    The log-sum-exp has the sinks in it, and is None unless it is needed or asked for.
    """
    sinks = call.score_options.sinks
    options: dict[str, Any] = {"return_aux": AuxRequest(lse=True)} if lse or sinks is not None else {}
    made = attention(
        call.q,
        call.k,
        call.v,
        score_mod=_score_mod(call),
        block_mask=block_mask(call.where),
        scale=call.scale,
        enable_gqa=call.groups > 1,
        **options,
    )
    if not options:
        return made, None
    out, total = made[0], made[1].lse
    if sinks is None:
        return out, total
    sink = sinks[:, None].to(total.dtype)
    return (out * (total - sink).sigmoid()[..., None]).to(out.dtype), torch.logaddexp(total, sink)


def _score_mod(call: AttentionCall) -> ScoreMod | None:
    """Return what is done to each score: soft cap, then bias, read from a table by offset in memory order."""
    table, softcap = call.at.offset_table, call.score_options.softcap
    if table is None and softcap is None:
        return None
    # a tensor, since a number would be compiled in, anew for each length; made on the device, without waiting for it
    last = torch.full((), call.where.shape[0] - 1, dtype=torch.int32, device=call.q.device)
    own = 0 if table is None else int(table.shape[0] > 1)

    # FlexAttention inspects the function itself: the wrapper of the run-time type checker would hide its signature
    @no_type_check
    def modify(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        return score if table is None else score + table[h * own, k - q + last].to(score.dtype)

    return modify


def _needless(call: AttentionCall) -> str | None:
    """Return why another backend is better for a call; None if none is."""
    where = call.where
    plain = "bias" not in call.at.scheme.hooks and not call.score_options.in_use
    if plain and (where.is_plain_causal or where.is_unmasked):
        return "PyTorch's own attention needs no mask here, and is faster"
    if where.shape[1] < MIN_KEYS:
        return f"there are fewer than {MIN_KEYS} keys, for which a mask is small"
    if where.start:
        return "the queries continue a cache, whose length would be compiled in"
    return None


def _form(call: AttentionCall) -> tuple[Hashable, ...]:
    """What a compiled kernel depends on, lengths apart."""
    where, table, options = call.where, call.at.offset_table, call.score_options
    documents = None if where.q_document is None else where.q_document.shape[0] > 1
    structure = where.is_causal, where.window, documents, where.is_unmasked
    learned = table is not None and table.requires_grad
    grad = torch.is_grad_enabled() and (learned or any(x.requires_grad for x in (call.q, call.k, call.v)))
    bias = None if table is None else (table.shape[0] > 1, learned)
    widths = call.q.shape[-1], call.v.shape[-1], call.groups
    return structure, bias, options.softcap, options.sinks is None, widths, call.q.dtype, call.q.device, grad


@cache
def compile_for(form: Hashable) -> Callable[..., Any]:
    """Compile `flex_attention` for one form of call (structure, bias, options, widths, dtype, device, gradients)."""

    def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        return flex_attention(q, k, v, **options)

    # torch.compile limits recompilations per code object, and past the limit falls back to eager FlexAttention, which
    # holds queries x keys in memory: so each form gets its own code object, and fullgraph makes the limit an error
    attention.__code__ = attention.__code__.replace(co_name=f"attention_{hash(form) & 0xFFFFFFFF:x}")
    return torch.compile(attention, fullgraph=True)
