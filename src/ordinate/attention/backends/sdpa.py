"""PyTorch's scaled_dot_product_attention (SDPA)."""

import math

import torch

from ordinate.attention._backend import AttentionCall, Backend
from ordinate.attention._proof import UNTESTED, unproved_reason
from ordinate.attention._sdpa import needs_no_mask, sdpa_attention, unmasked_causal, unsupported_reason, upcasts
from ordinate.attention._workspace import fused_kernel_bytes, row_workspace
from ordinate.core.devices import on_cpu
from ordinate.core.shapes import Outputs


class Sdpa(Backend):
    """`torch.nn.functional.scaled_dot_product_attention`, with a mask tensor only where it is needed.

    Plain causal and full attention need no mask, and O(n) memory; other geometries need one mask of queries x keys,
    built once for all layers. On a CPU it rejects non-finite inputs, which PyTorch would hide (its CPU kernel turns a
    NaN query into zeros), and scores so large that the gradients of that kernel become infinite; inside
    `torch.compile` and on GPUs neither is checked. On a CPU, 16-bit calls of which anything requires gradients
    are computed in float32, which is faster there, and more accurate. On a GPU, calls with a mask or bias prove
    themselves first.
    """

    priority = 500

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject hooks that need the weights, non-finite inputs, and very large scores."""
        return unsupported_reason(call) or _disproved(call)

    def run(self, call: AttentionCall) -> Outputs:
        """Call PyTorch's scaled_dot_product_attention with positions as a mask or bias."""
        return sdpa_attention(call)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Mask or bias while it is made, float32 copies for 16-bit training on a CPU, and PyTorch's own buffers.

        The buffers of the fused kernel on a CPU are counted; those of kernels on a GPU, which PyTorch chooses, are
        not known. Where PyTorch has no fused kernel (a learned bias, dropout on a CPU), scores and weights count.
        """
        if not unmasked_causal(call) or (call.dropout and on_cpu(call.q)):
            return row_workspace(call, sdpa_attention)
        queries = call.where.shape[0]
        log_sums = max(4, call.q.element_size()) * math.prod(call.q.shape[:3])
        if upcasts(call):
            copies = 4 * (2 * call.q.numel() + call.k.numel() + call.v.numel())
            return copies + log_sums + fused_kernel_bytes(queries, call.q.shape, call.k.shape, torch.float32)
        if not on_cpu(call.q):
            return log_sums
        return log_sums + fused_kernel_bytes(queries, call.q.shape, call.k.shape, call.q.dtype)


def _disproved(call: AttentionCall) -> str | None:
    """Return why PyTorch's attention is wrong for a call with a mask or bias on a GPU; None if it is right.

    Where it cannot be tested now, it is trusted: only the reference formula comes after it.
    """
    if needs_no_mask(call):
        return None
    reason = unproved_reason("sdpa", call)
    return None if reason == UNTESTED else reason
