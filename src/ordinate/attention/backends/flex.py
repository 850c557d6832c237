"""PyTorch's FlexAttention, compiled, on GPUs."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.core.shapes import Outputs
from ordinate.schemes._score_mod import mask_mod, score_mod

# smallest head width of FlexAttention's kernels
MIN_CHANNELS = 16


class Flex(Backend):
    """`torch.nn.attention.flex_attention`, compiled: a bias by offset without a queries x keys tensor, on GPUs.

    It has not run on a GPU so far. Its priority comes after that of `reference`, which supports every call, so it is
    used only when it is named.
    """

    priority = 1100

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, biases that depend on more than the offset, dropout, float64, and narrow heads."""
        if call.q.device.type != "cuda":
            return "only GPUs are supported"
        return unsupported_reason(call)

    def run(self, call: AttentionCall) -> Outputs:
        """Call FlexAttention, compiled once for each form of call."""
        where, hooks = call.where, call.at.scheme.hooks
        structure = where.is_causal, where.window, where.q_document is None, "bias" in hooks
        grad = torch.is_grad_enabled() and any(x.requires_grad for x in (call.q, call.k, call.v))
        widths = call.q.shape[-1], call.v.shape[-1], call.groups
        return run_flex_attention(call, compile_for((structure, widths, call.q.dtype, call.q.device, grad)))

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Block mask of 128 x 128 pairs, and a log-sum-exp for each query."""
        queries, keys = (size // 128 + 1 for size in call.where.shape)
        return 4 * (4 * call.where.batch_size * queries * keys + call.q.shape[:3].numel())


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


def run_flex_attention(call: AttentionCall, attention: Callable[..., Tensor]) -> Outputs:
    """Compute attention by `flex_attention`, or by its compiled form, given as `attention`."""
    where, device = call.where, call.q.device
    rows = where.batch_size if where.batch_size > 1 else None
    seen = (
        None
        if where.is_unmasked
        else create_block_mask(mask_mod(where), rows, None, *where.shape, device=str(device))
    )
    grouped = call.groups > 1
    return attention(
        call.q, call.k, call.v, score_mod=score_mod(call.at), block_mask=seen, scale=call.scale, enable_gqa=grouped
    )


@cache
def compile_for(form: Hashable) -> Callable[..., Tensor]:
    """Compile `flex_attention` for one form of call (structure, widths, dtype, device, gradients)."""

    def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return flex_attention(q, k, v, **options)

    # torch.compile limits recompilations per code object, and past the limit falls back to eager FlexAttention, which
    # holds queries x keys in memory: so each form gets its own code object, and fullgraph makes the limit an error
    attention.__code__ = attention.__code__.replace(co_name=f"attention_{hash(form) & 0xFFFFFFFF:x}")
    return torch.compile(attention, fullgraph=True)
