"""PyTorch's own attention."""

from dataclasses import replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from ordinate.route import Call, Route
from ordinate.shapes import Outputs

STEEP = 1e6


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
        if "score" in call.at.scheme.hooks:
            return "the scheme has scores of its own in place of q.k"
        if "carry" in call.at.scheme.hooks:
            return "the scheme's carry needs the attention weights, which PyTorch does not give"
        if call.q.shape[-1] != call.v.shape[-1]:
            return "the values have another width than queries and keys"
        if 0 in call.q.shape or 0 in call.k.shape:
            return "a tensor is empty"
        if call.q.device.type != "cpu" or torch.compiler.is_compiling():
            return None
        if not call.finite:
            return "q, k or v holds a number that is not finite"
        # the way back recovers the weights from scores that were rounded in another way: exp of the difference
        if torch.is_grad_enabled() and call.q.requires_grad and call.steepest > STEEP:
            return f"scores may exceed {STEEP:g}, for which PyTorch's gradients are wrong on a CPU"
        return None

    def run(self, call: Call) -> Outputs:
        """One call of PyTorch's function."""
        if _widens(call):
            wide = replace(call, q=call.q.float(), k=call.k.float(), v=call.v.float())
            return self.run(wide).to(call.q.dtype)
        plain = call.where.plain_causal and not {"bias", "content_bias"} & set(call.at.scheme.hooks)
        return scaled_dot_product_attention(
            call.q,
            call.k,
            call.v,
            attn_mask=None if plain else _mask(call),
            dropout_p=call.dropout,
            is_causal=_settled(plain),
            scale=call.scale,
            enable_gqa=_settled(call.groups > 1),
        )

    def bytes(self, call: Call) -> int:
        """The mask, if there is one, and wider copies where 16-bit attention is trained on a CPU."""
        copies = 4 * (2 * call.q.numel() + call.k.numel() + call.v.numel()) if _widens(call) else 0
        return copies + self._mask_bytes(call)

    def _mask_bytes(self, call: Call) -> int:
        hooks = set(call.at.scheme.hooks)
        if call.where.plain_causal and not {"bias", "content_bias"} & hooks:
            return 0
        queries, keys = call.where.shape
        rows = call.q.shape[0] if call.where.q_document is not None else 1
        if "content_bias" in hooks:
            return call.pairs * 4
        if "bias" in hooks:
            return rows * call.q.shape[1] * queries * keys * 4
        return 0 if call.where.sees_all else rows * queries * keys


def _settled(claim: bool) -> bool:
    """True or False: inside torch.compile a claim about sizes may be a symbol, which PyTorch's function refuses."""
    if claim:  # noqa: SIM103
        return True
    return False


def _widens(call: Call) -> bool:
    # the way back through PyTorch's 16-bit attention on a CPU takes up to three times as long as in float32
    return call.q.device.type == "cpu" and call.q.dtype.itemsize == 2 and call.q.requires_grad


def _mask(call: Call) -> torch.Tensor | None:
    mask = call.at.mask
    content = call.at.scheme.content_bias(call.q, call.k.repeat_interleave(call.groups, 1), call.where)
    if content is not None:
        hidden = ~call.where.visible[:, None]
        mask = content if call.at.bias is None else content + call.at.bias
        mask = mask.masked_fill(hidden, float("-inf"))
    if mask is not None and mask.is_floating_point() and mask.dtype != call.q.dtype:
        # the CPU kernel takes a float32 mask beside 16-bit queries, and keeps its precision; elsewhere it needs one
        # type, and beside float64 queries it would misread the mask without a word
        narrow = call.q.device.type == "cpu" and call.q.dtype.itemsize == 2
        keep = narrow and mask.dtype == torch.float32 and not mask.requires_grad
        return mask if keep else mask.to(call.q.dtype)
    return mask
