"""What RWKV-6 and RWKV-7 do with what their heads have read: a norm for each head, and a gate."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import group_norm

from ordinate.native import gated_norm as native
from ordinate.native.scan import refuses
from ordinate.shapes import Outputs, Tokens

Channel = Float[Tensor, " width"]
# of the variance
EPSILON = 64e-5


def gated_norm(y: Outputs, gate: Tokens, scale: Channel, shift: Channel, own: native.Own | None = None) -> Tokens:
    """The heads of a token side by side, as the gate has them: (norm of each head(y) scale + shift + own) gate.

    Args:
        y: what the heads have read, in float32 at least.
        gate: a factor for each channel; the result has its type.
        scale: a factor for each channel of the norm.
        shift: a term for each channel.
        own: r, k, v and c of what a token reads of itself, (sum over a head's channels of r c k) v; None: nothing.
    """
    heads = rearrange(gate, "b n (h d) -> b h n d", h=y.shape[1])
    # one pass over memory in C++ where there is a compiler: the same to rounding
    if refuses("gated_norm", y, heads, scale, shift, *(own or ())) is None:
        return rearrange(native.gated_norm(y, heads, scale, shift, EPSILON, own), "b h n d -> b n (h d)")
    rows = group_norm(rearrange(y, "b h n d -> (b n) (h d)"), y.shape[1], scale, shift, EPSILON).view(gate.shape)
    if own is not None:
        r, k, v, bonus = own
        read = (r * k * bonus.view(y.shape[1], 1, -1)).sum(-1, keepdim=True)
        rows = rows + rearrange(read * v, "b h n d -> b n (h d)")
    return rows.to(gate.dtype) * gate
