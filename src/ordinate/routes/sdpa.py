"""PyTorch's own attention."""

from ordinate.fused import fused, unfit, unmasked_causal, widens
from ordinate.route import Call, Route
from ordinate.shapes import Outputs


class Sdpa(Route):
    """`torch.nn.functional.scaled_dot_product_attention`, with a mask only where structure cannot say the same.

    Plain causal text and geometries that see all go without a mask, in O(n) memory; everything else holds one mask of
    queries x keys, made once for all layers. On CPU it refuses numbers that are not finite, which PyTorch would hide
    there (its CPU kernel turns a NaN query into zeros), and scores so large that the gradients of that kernel become
    infinite; inside `torch.compile` and on GPUs that is not looked at. On CPU 16-bit inputs that want gradients are
    computed in float32, which is faster there, and closer.
    """

    order = 500

    def refuses(self, call: Call) -> str | None:
        """Hooks that need the weights, and numbers that are not finite."""
        return unfit(call)

    def run(self, call: Call) -> Outputs:
        """One call of PyTorch's function."""
        return fused(call)

    def bytes(self, call: Call) -> int:
        """The mask, if there is one, and wider copies where 16-bit attention is trained on a CPU."""
        copies = 4 * (2 * call.q.numel() + call.k.numel() + call.v.numel()) if widens(call) else 0
        return copies + self._mask_bytes(call)

    def _mask_bytes(self, call: Call) -> int:
        if unmasked_causal(call):
            return 0
        hooks = set(call.at.scheme.hooks)
        queries, keys = call.where.shape
        rows = call.q.shape[0] if call.where.q_document is not None else 1
        if "content_bias" in hooks:
            return call.pairs * 4
        if "bias" in hooks:
            return rows * call.q.shape[1] * queries * keys * 4
        return 0 if call.where.sees_all else rows * queries * keys
