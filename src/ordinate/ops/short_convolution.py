"""Short causal convolution of each channel, with which recent layers precede a recurrence."""

from jaxtyping import Float
from torch import Tensor, cat

from ordinate.core.shapes import Tokens

Taps = Float[Tensor, "channels taps"]
Recent = Float[Tensor, "b reach channels"]


def short_convolution(
    x: Tokens, taps: Taps, bias: Float[Tensor, "channels"] | None = None, recent: Recent | None = None
) -> tuple[Tokens, Recent]:
    """Return the filtered channels, and the last inputs, which the next call needs.

        y_t = sum over l < taps of taps[taps - 1 - l] x_(t-l) + bias

    Args:
        x: inputs.
        taps: filter of each channel, the tap of the token itself last, as in `torch.nn.Conv1d`.
        bias: added to each channel; None: nothing.
        recent: the inputs before, one fewer than taps; None: zeros.
    """
    count, tokens = taps.shape[1], x.shape[1]
    recent = x.new_zeros(x.shape[0], count - 1, x.shape[2]) if recent is None else recent.to(x.dtype)
    taps, whole = taps.to(x.dtype), cat([recent, x], 1)
    # a sum of shifted products: for few taps as fast as a grouped convolution, and vmap and autograd map it
    y = x * taps[:, -1]
    for place in range(count - 1):
        y = y.addcmul(whole[:, place : place + tokens], taps[:, place])
    # a copy: a view would keep all inputs alive in the state
    newest = whole[:, tokens:].clone()
    return y if bias is None else y + bias.to(x.dtype), newest
