"""Tiled attention in C++, built on this machine: no bias, or one that depends on the offset alone; on CPUs."""

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._few_pairs import few_forward_pairs, few_head_pairs
from ordinate.attention._native import native_attention, native_workspace, stays_in_range, unfit, unsupported
from ordinate.core.shapes import Outputs
from ordinate.ops.native import build

# with fewer query-key pairs, over batch and heads, the overhead exceeds the gain
MIN_PAIRS = 2**16
# with fewer in a head PyTorch's own attention is faster
MIN_HEAD_PAIRS = 2**11
# as many times more in a forward pass alone on a processor of Intel's (measured on Granite Rapids), and there without
# mask and bias in 32 and in 16 bits
MORE_FORWARD, MORE_PLAIN, MORE_PLAIN_16_BITS = 4, 16, 256


class Native(Backend):
    """Tiled attention with an online softmax in C++, on CPUs, for biases that depend on the offset alone, or none.

    The source is compiled once by the machine's C++ compiler, in some seconds, when first needed, and cached in the
    user's cache folder ($XDG_CACHE_HOME or ~/.cache, then ordinate). ORDINATE_NATIVE=off disables it. Scores, softmax
    and sums are float32. bfloat16 is multiplied natively where the processor supports it, and else converted tile by
    tile; float16 is converted to float32 as a whole. A sink is a key that the running softmax starts from. Keys whose
    total weight is below rounding are skipped (`ordinate.ops.decay_cutoff`).
    """

    priority = 200
    supported_options = frozenset({"softcap", "sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, float64, other biases, dropout, small inputs, and machines without a compiler."""
        reason = unsupported(call) or offset_bias_unsupported(call)
        if reason is not None:
            return reason
        # without a bias there is less to save
        fewest = MIN_PAIRS if "bias" in call.at.scheme.hooks else 4 * MIN_PAIRS
        if call.num_pairs < fewest:
            return f"there are fewer than {fewest} query-key pairs"
        return build.unavailable_reason("attention") or unfit(call) or _unfit_bias(call)

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave very short texts to PyTorch."""
        plain = call.where.is_unmasked and "bias" not in call.at.scheme.hooks
        more = (MORE_PLAIN_16_BITS if call.q.dtype.itemsize == 2 else MORE_PLAIN) if plain else MORE_FORWARD
        return few_head_pairs(call, MIN_HEAD_PAIRS) or few_forward_pairs(call, more * MIN_HEAD_PAIRS)

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the autograd function around the C++ kernels."""
        return native_attention(call, call.at.offset_table)[0]

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Buffers in C++, float32 copies of other types with their output, and tables of biases."""
        return native_workspace(call)


def _unfit_bias(call: AttentionCall) -> str | None:
    """Return why the bias is not supported: the kernel would turn NaN into a finite number; None if it is."""
    table = call.at.offset_table
    if table is None:
        return None
    # all layers share it
    largest = call.at.cached("largest bias", lambda: table.detach().amax().item())
    return None if stays_in_range(call, largest) else "the bias contains NaN or infinity, or scores may overflow"
