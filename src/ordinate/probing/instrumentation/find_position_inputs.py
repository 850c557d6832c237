"""Find the inputs by which a model can be given other positions, and verify each."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Tokens
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing.instrumentation.position_inputs import (
    PositionIds,
    PositionIndices,
    PositionInput,
    PositionTable,
    RotationTable,
    takes_position_ids,
)
from ordinate.probing.instrumentation.relative_biases import find_biases

RunStream = Callable[[Inputs], Tokens]
"""Runs a model and returns its residual stream."""
Trial = Callable[[list[PositionInput], PositionIndices], Tensor]
"""Runs a model with positions given in these ways, and returns its residual stream."""


def find_position_inputs(
    part: nn.Module, table: PositionTable | None, rotation: RotationTable | None, trial: Trial, length: int
) -> list[PositionInput]:
    """Return the ways for which default positions change nothing and reversed positions do.

    Args:
        part: the model.
        table: its position embeddings; None: none.
        rotation: the module with its RoPE cosines and sines; None: none.
        trial: runs the model with given ways.
        length: tokens of the example.
    """
    usual = torch.arange(length, device=next(part.parameters()).device)[None]
    # prefix tokens have no position and stay in front
    prefix = 0 if rotation is None else rotation.prefix
    other = torch.cat([usual[:, :prefix], usual[:, prefix:].flip(1)], 1)
    plain = trial([], usual)

    def works(way: PositionInput) -> bool:
        try:
            same, moved = trial([way], usual), trial([way], other)
        except (IndexError, RuntimeError, TypeError):
            # a position id out of range, or an argument that the model does not take
            return False
        return _close(same, plain) and not torch.equal(moved, plain)

    kind = table.kind if table is not None else "rope"
    first: list[PositionInput] = []
    if takes_position_ids(part):
        offsets = dict.fromkeys((0, 0 if table is None else table.offset))
        first = [PositionIds(offset, kind) for offset in offsets]
    others: list[PositionInput] = [way for way in (table, rotation) if way is not None]
    found = next(([way] for way in chain(first, others) if works(way)), [])
    return [*found, *(bias for bias in find_biases(part) if works(bias))]


class NoPositionInput(PositionInput):
    """A model without position encoding: any positions have no effect."""

    kind = "none"


def ignores_position(stream: RunStream, example: Inputs) -> bool:
    """Whether a model has no position encoding: without a mask it is permutation-equivariant.

    Args:
        stream: runs the model.
        example: texts; for images the answer is False.
    """
    if example.ids is None:
        return False
    length = example.ids.shape[1]
    everyone = torch.ones(1, length, length, dtype=torch.bool, device=example.ids.device)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(0))
    try:
        plain, *usual = (stream(replace(example, mask=seen)) for seen in (None, everyone, everyone.tril()))
        moved = stream(replace(example, ids=example.ids[:, order], mask=everyone))
    except NotApplicable:
        return False
    # replacing the mask also removes a bias that the model adds to it (ALiBi): with such a bias neither a full nor a
    # causal mask reproduces the plain pass
    return any(_close(one, plain) for one in usual) and _close(moved, usual[0][:, order])


def _close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= 64 * torch.finfo(other.dtype).eps * other.abs().max())
