"""Convert checkpoints between the two channel layouts of RoPE, `half` and `interleaved`."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known
from ordinate.ops.rotate import Layout, join_pairs, split_pairs

OTHER: dict[Layout, Layout] = {"half": "interleaved", "interleaved": "half"}
"""The other layout of each, from which it is converted."""


def convert_channels(
    x: Float[Tensor, "*any d"], *, to: Layout, rotated: int | None = None
) -> Float[Tensor, "*any d"]:
    """Permute the channels of queries or keys from the other layout to the layout `to`.

        to half:         channel m of the result = channel 2m, then 2m + 1, of x:    0 2 4 ..  1 3 5 ..
        to interleaved:  channel 2m, 2m + 1 of the result = channel m, m + d/2:      0 d/2  1 d/2+1 ..

    Args:
        x: queries or keys; the last axis is the channels of one head.
        to: the target layout, `half` or `interleaved`.
        rotated: number of rotated channels, the first of the head; the others stay. None: all.
    Raises:
        ValueError: an unknown layout; `rotated` is odd, below 2 or larger than the head.
    """
    need_known("layout", to, OTHER)
    width = x.shape[-1] if rotated is None else rotated
    need(
        width % 2 == 0 and 0 < width <= x.shape[-1],
        "rotated must be even and at most the head width",
        f"got {width} of {x.shape[-1]} channels",
        "give an even number from 2 to the head width",
    )
    turning, still = x.tensor_split((width,), -1)
    return torch.cat([join_pairs(*split_pairs(turning, OTHER[to]), to), still], -1)


def convert_projection(
    weight: Float[Tensor, "*shape"], *, head_width: int, to: Layout, rotated: int | None = None, axis: int = 0
) -> Float[Tensor, "*shape"]:
    """Convert the weight or bias of a query or key projection from the other layout.

    Convert the projections of queries *and* keys, weights and biases, and everything that acts on single channels of
    a head after them, such as the weight of a query norm. Rotating in layout `to` then gives the same scores. Values
    and the output projection stay as they are. Converting there and back gives the same bits.

    Args:
        weight: (heads * head_width, width) as in `nn.Linear`, of any number of heads, so key heads work as well.
        head_width: channels of a head.
        to: the target layout, `half` or `interleaved`.
        rotated: number of rotated channels of each head, its first ones; None: all.
        axis: the axis of the heads' channels; 1 for weights stored as (width, heads * head_width).
    Raises:
        ValueError: the axis is not a whole number of heads; otherwise as `convert_channels`.
    """
    rows = weight.shape[axis]
    need(
        head_width > 0 and rows % head_width == 0,
        "head_width must divide the axis of the heads' channels",
        f"got {rows} channels for heads of {head_width}",
        "give the head width of the checkpoint, or the axis of its heads",
    )
    heads = weight.movedim(axis, -1).unflatten(-1, (-1, head_width))
    return convert_channels(heads, to=to, rotated=rotated).flatten(-2).movedim(-1, axis).contiguous()
