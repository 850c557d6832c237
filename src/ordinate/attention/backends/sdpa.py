"""PyTorch's scaled_dot_product_attention (SDPA)."""

from ordinate.attention._backend import AttentionCall, Backend
from ordinate.attention._sdpa import sdpa_attention, unmasked_causal, unsupported_reason, upcasts
from ordinate.core.shapes import Outputs


class Sdpa(Backend):
    """`torch.nn.functional.scaled_dot_product_attention`, with a mask tensor only where it is needed.

    Plain causal and full attention need no mask, and O(n) memory; other geometries need one mask of queries x keys,
    built once for all layers. On a CPU it rejects non-finite inputs, which PyTorch would hide (its CPU kernel turns a
    NaN query into zeros), and scores so large that the gradients of that kernel become infinite; inside
    `torch.compile` and on GPUs neither is checked. On a CPU, 16-bit inputs that require gradients are computed in
    float32, which is faster there, and more accurate.
    """

    priority = 500

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject hooks that need the weights, non-finite inputs, and very large scores."""
        return unsupported_reason(call)

    def run(self, call: AttentionCall) -> Outputs:
        """Call SDPA."""
        return sdpa_attention(call)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Mask, if there is one, and float32 copies for 16-bit training on a CPU."""
        copies = 4 * (2 * call.q.numel() + call.k.numel() + call.v.numel()) if upcasts(call) else 0
        return copies + self._mask_bytes(call)

    def _mask_bytes(self, call: AttentionCall) -> int:
        if unmasked_causal(call):
            return 0
        hooks = set(call.at.scheme.hooks)
        queries, keys = call.where.shape
        rows = call.q.shape[0] if call.where.q_document is not None else 1
        if "content_bias" in hooks:
            return call.num_pairs * 4
        if "bias" in hooks:
            return rows * call.q.shape[1] * queries * keys * 4
        return 0 if call.where.is_unmasked else rows * queries * keys
