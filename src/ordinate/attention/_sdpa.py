"""Wrapper of PyTorch's scaled_dot_product_attention (SDPA), shared by the backends that call it.

It avoids the inputs for which PyTorch's kernels give wrong results.
"""

import torch
from jaxtyping import Bool

from ordinate.attention._backend import AttentionCall, confine_nonfinite
from ordinate.core.devices import on_cpu
from ordinate.core.records import changed
from ordinate.core.shapes import Keys, Outputs, Queries, Values
from ordinate.core.tensors import need_scores
from ordinate.ops.double_backward import untraceable
from ordinate.ops.heads import repeat_keys
from ordinate.ops.matmul import multiplies_tiles
from ordinate.ops.sdpa import distrusted_reason, sdpa

# smallest head width, and head width times keys, for which the kernel trains faster in bfloat16 with AMX
AMX_WIDTH, AMX_NUMBERS = 64, 2**14


def unsupported_reason(call: AttentionCall) -> str | None:
    """Return why SDPA does not support the call or would compute it wrongly; None if it is supported."""
    for hook, reason in (
        ("score", "the scheme replaces q.k by its own scores"),
        ("value_bias", "the scheme's value_bias needs the attention weights, which PyTorch does not return"),
    ):
        if hook in call.at.scheme.hooks:
            return reason
    if call.q.shape[-1] != call.v.shape[-1]:
        return "the values have another head width than queries and keys"
    if 0 in call.q.shape or 0 in call.k.shape:
        return "a tensor is empty"
    if call.scale == 0:
        return "the scale is 0, for which PyTorch's kernels return NaN"
    # a causal kernel scales what it has masked with -inf; those for GPUs take the maximum of a row before they scale
    if call.scale < 0 and (unmasked_causal(call) or not on_cpu(call.q)):
        return "the scale is below 0, for which PyTorch's kernels return NaN"
    if not on_cpu(call.q) or torch.compiler.is_compiling():
        return None
    if call.overflow_reason is not None:
        return call.overflow_reason
    return distrusted_reason(call.q, call.k, call.v, call.scale)


def sdpa_attention(call: AttentionCall) -> Outputs:
    """Call SDPA, with a mask tensor only where `is_causal` or no mask is not enough."""
    if upcasts(call):
        wide = changed(call, q=call.q.float(), k=call.k.float(), v=call.v.float())
        return sdpa_attention(wide).to(call.q.dtype)
    plain = unmasked_causal(call)
    return sdpa(
        call.q,
        call.k,
        call.v,
        None if plain else _mask(call),
        dropout=call.dropout,
        is_causal=_concrete_bool(plain),
        scale=call.scale,
        grouped=_concrete_bool(call.groups > 1),
    )


def masked_attention(
    q: Queries, k: Keys, v: Values, seen: Bool[torch.Tensor, "#b #i j"], *, scale: float, dropout: float
) -> Outputs:
    """Call SDPA with a boolean mask; rows that see a non-finite number become NaN, and no others.

    Args:
        q: queries.
        k: keys.
        v: values.
        seen: mask, True where a query may attend to a key; each query must see at least one key.
        scale: multiplies q.k.
        dropout: dropout probability of the weights.
    """

    def attention(q: Queries, k: Keys, v: Values) -> Outputs:
        return sdpa(q, k, v, seen[:, None], dropout=dropout, scale=scale, grouped=q.shape[1] > k.shape[1])

    # on a GPU reading a number would wait for the device: there NaN and infinity spread as PyTorch's kernels let them
    if torch.compiler.is_compiling() or not on_cpu(q):
        return attention(q, k, v)
    wide = torch.promote_types(q.dtype, torch.float32)
    totals = torch.stack([x.detach().sum(dtype=wide) for x in (q, k, v)])
    if untraceable(q) is None and bool(totals.isfinite().all()):
        return attention(q, k, v)
    return confine_nonfinite(q, k, v, seen, attention)


def unmasked_causal(call: AttentionCall) -> bool:
    """True if the mask is the plain causal one and no bias is added to the scores."""
    return call.where.is_plain_causal and not {"bias", "content_bias"} & set(call.at.scheme.hooks)


def needs_no_mask(call: AttentionCall) -> bool:
    """True if PyTorch's fused kernels take the call without a mask or bias as a tensor."""
    return unmasked_causal(call) or (call.where.is_unmasked and "bias" not in call.at.scheme.hooks)


def upcasts(call: AttentionCall) -> bool:
    """True if a 16-bit call is computed in float32."""
    if not on_cpu(call.q) or call.q.dtype.itemsize != 2:
        return False
    # on a CPU, the backward pass of SDPA takes up to three times as long in 16 bits as in float32
    if any(x.requires_grad for x in (call.q, call.k, call.v)) and not _learns_faster_in_bfloat16(call):
        return True
    # a bias that learns would have to be rounded to 16 bits: beside these, only one without gradient may be float32
    scheme = call.at.scheme
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in scheme.parameters())
    if "content_bias" in scheme.hooks and learns:
        return True
    return call.at.bias is not None and call.at.bias.requires_grad


def _learns_faster_in_bfloat16(call: AttentionCall) -> bool:
    """Whether PyTorch trains in bfloat16 as fast as in float32: with AMX, which needs wide heads and long texts."""
    width, keys = call.q.shape[3], call.where.shape[1]
    enough = width >= AMX_WIDTH and width * keys >= AMX_NUMBERS
    return call.q.dtype == torch.bfloat16 and enough and multiplies_tiles()


def _concrete_bool(condition: bool) -> bool:
    """Convert a possibly symbolic bool (SymBool under torch.compile) to a Python bool, as SDPA requires."""
    # the branch makes the compiler guard on the value; returning `condition` itself would return the symbol
    if condition:  # noqa: SIM103
        return True
    return False


def _mask(call: AttentionCall) -> torch.Tensor | None:
    mask, content = call.at.mask, None
    # without the hook keys need no copy
    if "content_bias" in call.at.scheme.hooks:
        content = call.at.scheme.content_bias(call.q, repeat_keys(call.k, call.q.shape[1]), call.where)
        need_scores("content_bias", call.at.scheme, content, (*call.q.shape[:2], *call.where.shape))
    if content is not None:
        hidden = ~call.where.visible[:, None]
        mask = content if call.at.bias is None else content + call.at.bias
        mask = mask.masked_fill(hidden, float("-inf"))
    if mask is not None and mask.is_floating_point() and mask.dtype != call.q.dtype:
        # with 16-bit queries the CPU kernel accepts a float32 mask and keeps its precision; elsewhere both need one
        # dtype, and with float64 queries a float32 mask would silently be misread
        narrow = on_cpu(call.q) and call.q.dtype.itemsize == 2
        keep = narrow and mask.dtype == torch.float32 and not mask.requires_grad
        return mask if keep else mask.to(call.q.dtype)
    return mask
