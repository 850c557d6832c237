"""MXFP4, the format of the experts of gpt-oss."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.pretrained._quantisation import (
    AGAIN,
    PackedWeight,
    Quantisation,
    need_scales,
    need_shape,
    power_of_two,
)
from ordinate.pretrained.checkpoint_files import CheckpointTensors

BLOCKS, SCALES = "_blocks", "_scales"
"""Ends of the names of the stored tensors."""
BYTES = 16
"""Bytes of a block, of two numbers each."""
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of E2M1 without a sign: bit 3 is the sign, 2 and 1 the exponent with a bias of 1, 0 the mantissa."""


@dataclass(frozen=True)
class Mxfp4Weight(PackedWeight):
    """Matrices of all experts, whose rows are in blocks of 32 numbers with a scale each.

    Stored are `blocks` (experts, outputs, inputs / 32, 16) and `scales` (experts, outputs, inputs / 32), bytes both;
    the weight is (experts, inputs, outputs), as it would be stored if it were not quantised.
    """

    def read(self, stored: CheckpointTensors) -> Float[Tensor, "experts inputs outputs"]:
        blocks, codes = (stored[name] for name in self.parts)
        # a pair of numbers is copied as one of 64 bits, in a tenth of the time
        scales, pairs = power_of_two(codes), pairs_of_bytes().view(torch.float64).flatten()
        need_scales(self.parts[1], scales)
        made = torch.empty(self.shape[0], self.shape[2], self.shape[1])
        # one expert at a time: what lies between the bytes and the numbers has four times their size
        for block, scale, out in zip(blocks, scales, made, strict=True):
            numbers = (
                pairs.index_select(0, block.flatten().int()).view(torch.float32).unflatten(0, (*scale.shape, -1))
            )
            torch.mul(numbers, scale[..., None], out=out.view_as(numbers))
        return made.mT


class Mxfp4(Quantisation):
    """Numbers of 4 bits (E2M1), 32 of which have a scale that is a power of two (E8M0).

    w = e2m1(nibble) 2^(scale - 127), the lower four bits of a byte before the upper ones.

    Source: Open Compute Project 2023, OCP Microscaling Formats (MX) Specification, version 1.0.
    """

    fields = frozenset({"quant_method", "modules_to_not_convert", "dequantize"})

    def check(self) -> None:
        # what transformers shall make of the weights when it loads them
        self.need_field("dequantize", (False, True))

    def packed(self, stored: CheckpointTensors) -> Mapping[str, PackedWeight]:
        found = [name.removesuffix(BLOCKS) for name in stored if name.endswith(BLOCKS)]
        return {name: _weight(stored, name) for name in found}


def pairs_of_bytes() -> Float[Tensor, "256 2"]:
    """Return the two numbers of each byte."""
    numbers = torch.tensor([*MAGNITUDES, *(-one for one in MAGNITUDES)])
    codes = torch.arange(256)
    return torch.stack([numbers[codes & 15], numbers[codes >> 4]], 1)


def _weight(stored: CheckpointTensors, name: str) -> Mxfp4Weight:
    parts = (name + BLOCKS, name + SCALES)
    shape = stored.shape(parts[0])
    fits = len(shape) == 4 and shape[-1] == BYTES
    must = f"{parts[0]} must have shape (experts, outputs, blocks, {BYTES})"
    need(fits, must, f"got {shape}", AGAIN)
    need_shape(stored, parts[1], shape[:3], parts[0])
    for part in parts:
        came, must = stored.dtype(part), "blocks and scales of MXFP4 must be bytes (U8)"
        need(came == "U8", must, f"{part} has {came}", AGAIN)
    return Mxfp4Weight(parts, (shape[0], shape[2] * 2 * BYTES, shape[1]))
