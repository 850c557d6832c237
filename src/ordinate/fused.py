"""PyTorch's own attention, and where it cannot be trusted: for the routes that call it."""

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch.nn.functional import scaled_dot_product_attention

from ordinate.route import Call
from ordinate.shapes import Keys, Outputs, Queries, Values

STEEP = 1e6


def unfit(call: Call) -> str | None:
    """Why PyTorch's attention cannot take the call, or would do it wrong; None: it can."""
    for hook, reason in (
        ("score", "the scheme has scores of its own in place of q.k"),
        ("carry", "the scheme's carry needs the attention weights, which PyTorch does not give"),
    ):
        if hook in call.at.scheme.hooks:
            return reason
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


def fused(call: Call) -> Outputs:
    """One call of PyTorch's function, with a mask only where structure cannot say the same."""
    if widens(call):
        wide = replace(call, q=call.q.float(), k=call.k.float(), v=call.v.float())
        return fused(wide).to(call.q.dtype)
    plain = unmasked_causal(call)
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


def masked(
    q: Queries, k: Keys, v: Values, seen: Bool[torch.Tensor, "#b #i j"], *, scale: float, dropout: float
) -> Outputs:
    """The same under a mask of one's own, for any numbers: rows that see one that is not finite become NaN."""
    options = {"dropout_p": dropout, "scale": scale, "enable_gqa": q.shape[1] > k.shape[1]}
    wide = torch.promote_types(q.dtype, torch.float32)
    totals = torch.stack([x.detach().sum(dtype=wide) for x in (q, k, v)])
    if torch.compiler.is_compiling() or bool(totals.isfinite().all()):
        return scaled_dot_product_attention(q, k, v, seen[:, None], **options)
    # a hidden NaN would survive multiplication by a zero weight, so it is taken out first
    sound = [x.isfinite().all(-1) for x in (q, k, v)]
    q, k, v = (x.masked_fill(~ok[..., None], 0.0) for x, ok in zip((q, k, v), sound, strict=True))
    out = scaled_dot_product_attention(q, k, v, seen[:, None], **options)
    keys = (sound[1] & sound[2]).repeat_interleave(q.shape[1] // k.shape[1], 1)
    poisoned = (seen[:, None] & ~keys[:, :, None]).any(-1) | ~sound[0]
    return out.masked_fill(poisoned[..., None], float("nan"))


def unmasked_causal(call: Call) -> bool:
    """Whether the call is plain causal text to whose scores nothing is added."""
    return call.where.plain_causal and not {"bias", "content_bias"} & set(call.at.scheme.hooks)


def widens(call: Call) -> bool:
    """Whether the call is computed in float32 although it came in 16 bits."""
    # the way back through PyTorch's 16-bit attention on a CPU takes up to three times as long as in float32
    return call.q.device.type == "cpu" and call.q.dtype.itemsize == 2 and call.q.requires_grad


def _settled(claim: bool) -> bool:
    """True or False: inside torch.compile a claim about sizes may be a symbol, which PyTorch's function refuses."""
    if claim:  # noqa: SIM103
        return True
    return False


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
