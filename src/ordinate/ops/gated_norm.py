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


def gated_norm(y: Outputs, gate: Tokens, scale: Channel, shift: Channel, added: Outputs | None = None) -> Tokens:
    """The heads of a token side by side, as the gate has them: (norm of each head(y) scale + shift + added) gate.

    Args:
        y: what the heads have read, in float32 at least.
        gate: a factor for each channel; the result has its type.
        scale: a factor for each channel of the norm.
        shift: a term for each channel.
        added: to the norm; None: nothing.
    """
    heads = rearrange(gate, "b n (h d) -> b h n d", h=y.shape[1])
    # one pass over memory in C++ where there is a compiler: the same to rounding
    if refuses("gated_norm", y, heads, scale, shift, *(() if added is None else (added,))) is None:
        return rearrange(native.gated_norm(y, heads, scale, shift, EPSILON, added), "b h n d -> b n (h d)")
    rows = group_norm(rearrange(y, "b h n d -> (b n) (h d)"), y.shape[1], scale, shift, EPSILON).view(gate.shape)
    if added is not None:
        rows = rows + rearrange(added, "b h n d -> b n (h d)")
    return rows.to(gate.dtype) * gate
