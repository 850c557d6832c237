"""Matrices of FP8 numbers in blocks with a scale each."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.pretrained._quantisation import AGAIN, PackedWeight, need_scales, need_shape, power_of_two
from ordinate.pretrained.checkpoint_files import CheckpointTensors

FP8 = "F8_E4M3"
"""The type of the numbers, as safetensors names it."""
POWERS = frozenset({"F8_E8M0", "U8"})
"""Types of scales that are powers of two: a type of their own, or their bytes."""
FLOATS = frozenset({"F32", "BF16", "F16"})
"""Types of other scales."""


@dataclass(frozen=True)
class ScaledBlocks(PackedWeight):
    """Matrices in blocks, the last of which may be smaller: w[i, j] = fp8[i, j] scale[i // rows, j // columns].

    The product is rounded once, to float32.

    Args:
        block: rows and columns of a block.
        rounded: whether transformers rounds the product to the type of the scales.
    """

    block: tuple[int, int]
    rounded: bool

    @property
    def departure(self) -> str:
        if any(size > side and size % side for size, side in zip(self.shape[-2:], self.block, strict=True)):
            return "which is divided into blocks of equal size there: its last one is smaller"
        return "whose numbers are rounded there to the 16 bits of its scales" if self.rounded else ""

    def read(self, stored: CheckpointTensors) -> Float[Tensor, "... outputs inputs"]:
        numbers, scales = (stored[name] for name in self.parts)
        powers = scales.dtype in (torch.uint8, torch.float8_e8m0fnu)
        scales = power_of_two(scales) if powers else scales.float()
        need_scales(self.parts[1], scales)
        grid = scales.expand(1, 1) if scales.numel() == 1 else scales
        made, (rows, columns) = numbers.float(), self.block
        by_row = grid.repeat_interleave(rows, -2)[..., : made.shape[-2], :]
        # a column of blocks at a time: nothing else has the size of the weight
        for place in range(grid.shape[-1]):
            made[..., place * columns : (place + 1) * columns] *= by_row[..., place : place + 1]
        return made


def scaled_blocks(
    stored: CheckpointTensors,
    names: tuple[str, str],
    block: tuple[int, int] | None,
    kinds: Collection[str],
    *,
    rounds: bool = False,
) -> ScaledBlocks:
    """Return a weight, of which only headers are read.

    Args:
        stored: the tensors of the checkpoint.
        names: those of the numbers and of their scales.
        block: rows and columns of a block; None: one block is the whole weight. 0 stands for the whole side.
        kinds: the types that scales may have.
        rounds: whether transformers computes in the type of the scales.

    Raises:
        ValueError: no scales, or scales of another shape or type, or numbers that are no matrices.
    """
    weight, scale = names
    shape = stored.shape(weight)
    need(len(shape) > 1, "quantised weights must be matrices", f"{weight} has shape {shape}", AGAIN)
    # sides of 0 are refused by the family, which knows the right ones
    sides = tuple(max(side or size, 1) for side, size in zip(block or (0, 0), shape[-2:], strict=True))
    grid = (*shape[:-2], *(-(-size // side) for size, side in zip(shape[-2:], sides, strict=True)))
    single = block is None and scale in stored and stored.shape(scale) in ((), (1,))
    need_shape(stored, scale, stored.shape(scale) if single else grid, weight)
    came, must = stored.dtype(scale), f"{scale} must have one of the types {', '.join(sorted(kinds))}"
    need(came in kinds, must, f"got {came}", AGAIN)
    return ScaledBlocks(names, shape, (sides[0], sides[1]), rounds and came != "F32")
