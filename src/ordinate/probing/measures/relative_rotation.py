"""Relative rotation matrices R of queries and keys, measured for each offset (RoPE in text and images)."""

from collections.abc import Sequence
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Keys, Queries, Values
from ordinate.ops.heads import repeat_for_heads
from ordinate.probing._adapter import Hooks, Inputs, ModelAdapter, NotApplicable
from ordinate.probing.measures.samples import Sample

Offset = tuple[int, ...]
"""Query position - key position along each axis: (tokens,) in a text, (rows, columns) in an image."""
RelativeRotations = Float[Tensor, "#h offsets d d"]
"""R of each offset, with q_i . k_j = q R k; a single matrix for all heads if they share it."""

TEXT_OFFSETS, IMAGE_REACH = (0, 1, 2, 4, 8, 16), 8


def axis_sizes(sample: Sample) -> tuple[int, ...]:
    """Size of each axis: tokens of a text, or rows and columns of patches."""
    return sample.grid or (sample.length,)


def measured_offsets(axes: Sequence[int]) -> tuple[Offset, ...]:
    """Offsets that are measured: increasingly sparse backwards in a text, a full square around a patch in an image.

    Args:
        axes: size of each axis.
    """
    if len(axes) == 1:
        return tuple((step,) for step in TEXT_OFFSETS if step < axes[0])
    reach = min(IMAGE_REACH, *(size - 1 for size in axes))
    return tuple(product(range(-reach, reach + 1), repeat=len(axes)))


def pair_at_offset(axes: Sequence[int], offset: Offset) -> tuple[int, int]:
    """Flat (row-major) indices of a query and a key at this offset, as close to the end as possible."""
    query = key = 0
    for size, step in zip(axes, offset, strict=True):
        query, key = query * size + size - 1 - max(0, -step), key * size + size - 1 - max(0, step)
    return query, key


class CaptureRotations(Hooks):
    """Measures relative rotations by replacing queries and keys by unit vectors before the rotation.

    Class tokens and registers have no position and are left out.

    Args:
        width: width of a head; each row of the batch carries one unit vector.
        axes: size of each axis.
        prefix: number of leading tokens without position.
    """

    skip_head = True

    def __init__(self, width: int, axes: Sequence[int], prefix: int = 0) -> None:
        self.unit, self.prefix = torch.eye(width), prefix
        self.pairs = [pair_at_offset(axes, offset) for offset in measured_offsets(axes)]
        self.found: dict[int, RelativeRotations] = {}
        self._turned: set[int] = set()

    def qk_before_rope(self, layer: int, q: Queries, k: Keys) -> tuple[Queries, Keys]:
        if q.shape[-1] != len(self.unit):
            raise NotApplicable(
                f"only {q.shape[-1]} of {len(self.unit)} channels of a head are visible before rotation"
            )
        self._turned.add(layer)
        unit = self.unit.to(q)[:, None, None]
        return unit.expand_as(q).contiguous(), unit.expand_as(k).contiguous()

    def qkv(self, layer: int, q: Queries, k: Keys, v: Values) -> None:
        if layer not in self._turned:
            return
        asked, held = (_alike(x[:, :, self.prefix :].double().cpu().permute(1, 2, 0, 3)) for x in (q, k))
        held = repeat_for_heads(held, q.shape[1]) if len(held) > 1 else held
        turn = torch.stack([asked[:, query] @ held[:, key].mT for query, key in self.pairs], 1)
        # layers with equal rotations share one tensor: it may be large
        same = (own for own in self.found.values() if own.shape == turn.shape and torch.equal(own, turn))
        self.found[layer] = next(same, turn)


def relative_rotations(
    subject: ModelAdapter, sample: Sample, width: int, position: int = 0
) -> dict[int, RelativeRotations]:
    """Relative rotations of each layer at each of `offsets`; empty without rotary embedding.

    Args:
        subject: the model.
        sample: texts or images; only the beginning of the first is used.
        width: width of a head.
        position: position of the first token.

    Raises:
        NotApplicable: only some channels are visible before rotation, or the model takes no position ids.
    """
    few = sample.truncated(1, TEXT_OFFSETS[-1] + 1)
    given, watch = few.inputs(slice(0, 1)), CaptureRotations(width, axis_sizes(few), few.prefix)
    ids, images = (
        None if x is None else x.expand(width, *x.shape[1:]).contiguous() for x in (given.ids, given.images)
    )
    positions = (torch.arange(few.length) + position).expand(width, -1) if position else None
    subject.forward(Inputs(ids, positions, images=images), watch)
    return watch.found


def _alike(heads: Float[Tensor, "h n units d"]) -> Float[Tensor, "_ n units d"]:
    """Keep one head if all are equal."""
    return heads[:1] if torch.equal(heads, heads[:1].expand_as(heads)) else heads
