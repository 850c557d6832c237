"""Gated group normalisation per head, the output stage of RWKV-6 and RWKV-7."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import group_norm

from ordinate.core.shapes import Outputs, Tokens
from ordinate.ops.native import gated_norm as native
from ordinate.ops.native.scan import unsupported_reason

Channel = Float[Tensor, " width"]
# added to the variance
EPSILON = 64e-5


def gated_norm(y: Outputs, gate: Tokens, scale: Channel, shift: Channel, own: native.Own | None = None) -> Tokens:
    """Normalise each head and multiply by the gate: (norm(y) scale + shift + own) gate, heads concatenated.

    Args:
        y: outputs of the heads, in float32 or wider.
        gate: a factor for each channel; the result has its dtype.
        scale: weight of the norm for each channel.
        shift: bias of the norm for each channel.
        own: r, k, v and c of the current token's own term, (sum over a head's channels of r c k) v; None: no such
            term.
    """
    heads = rearrange(gate, "b n (h d) -> b h n d", h=y.shape[1])
    # one pass over memory in C++ where there is a compiler; results agree up to rounding
    if unsupported_reason("gated_norm", y, heads, scale, shift, *(own or ())) is None:
        made = native.gated_norm(_normed, y, heads, scale, shift, EPSILON, own)
    else:
        made = _normed(y, heads, scale, shift, *(own or ()))
    return rearrange(made, "b h n d -> b n (h d)")


def _normed(y: Outputs, gate: Outputs, scale: Channel, shift: Channel, *own: Tensor) -> Outputs:
    flat = rearrange(y, "b h n d -> (b n) (h d)")
    rows = group_norm(flat, y.shape[1], scale, shift, EPSILON).unflatten(0, (y.shape[0], y.shape[2]))
    rows = rearrange(rows, "b n (h d) -> b h n d", h=y.shape[1])
    if own:
        r, k, v, bonus = own
        rows = rows + (r * k * bonus.view(y.shape[1], 1, -1)).sum(-1, keepdim=True) * v
    return rows.to(gate.dtype) * gate
