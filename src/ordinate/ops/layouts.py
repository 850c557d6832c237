"""Carry checkpoints from one layout of rotated channels to the other."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need, need_known
from ordinate.ops.rotate import Layout, join, split

OTHER: dict[Layout, Layout] = {"half": "interleaved", "interleaved": "half"}
"""The layout that each is converted from."""


def convert_channels(
    x: Float[Tensor, "*any d"], *, to: Layout, rotated: int | None = None
) -> Float[Tensor, "*any d"]:
    """Queries or keys made for the other layout, with their channels in the order of layout `to`.

        to half:         channel m of the result = channel 2m, then 2m + 1, of x:    0 2 4 ..  1 3 5 ..
        to interleaved:  channel 2m, 2m + 1 of the result = channel m, m + d/2:      0 d/2  1 d/2+1 ..

    Args:
        x: the last axis holds the channels of one head.
        to: the layout that is wanted, `half` or `interleaved`.
        rotated: how many channels, the first ones, are rotated; the others stay. None: all.
    Raises:
        ValueError: an unknown layout; `rotated` is odd, below 2 or beyond the head.
    """
    need_known("layout", to, OTHER)
    width = x.shape[-1] if rotated is None else rotated
    need(
        width % 2 == 0 and 0 < width <= x.shape[-1],
        "rotated channels come in pairs within the head",
        f"got {width} of {x.shape[-1]} channels",
        "give an even number from 2 to the head width",
    )
    turning, still = x.tensor_split((width,), -1)
    return torch.cat([join(*split(turning, OTHER[to]), to), still], -1)


def convert_projection(
    weight: Float[Tensor, "*shape"], *, head_width: int, to: Layout, rotated: int | None = None, axis: int = 0
) -> Float[Tensor, "*shape"]:
    """The weight or bias that makes queries or keys, from a checkpoint of the other layout.

    Convert the projections of queries *and* keys, weights and biases, and whatever acts on single channels of a head
    after them, such as the weight of a query norm. Then rotate in layout `to`, and every score is what it was. Values
    and the output projection stay. There and back gives the same bits.

    Args:
        weight: of any number of heads, so key heads serve as well: (heads * head_width, width) in `nn.Linear`.
        head_width: channels of a head.
        to: the layout that is wanted, `half` or `interleaved`.
        rotated: how many channels of each head, the first ones, are rotated; None: all.
        axis: the axis that holds the heads' channels; 1 for weights kept as (width, heads * head_width).
    Raises:
        ValueError: the axis does not hold whole heads; otherwise as `convert_channels`.
    """
    rows = weight.shape[axis]
    need(
        head_width > 0 and rows % head_width == 0,
        "the axis must hold whole heads",
        f"got {rows} channels for heads of {head_width}",
        "give the head width of the checkpoint, or the axis that holds its heads",
    )
    heads = weight.movedim(axis, -1).unflatten(-1, (-1, head_width))
    return convert_channels(heads, to=to, rotated=rotated).flatten(-2).movedim(-1, axis).contiguous()
