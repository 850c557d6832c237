"""Tensors of a checkpoint whose rows are those of several tensors here, group by group."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ordinate.models.shape import Shape
from ordinate.pretrained._family import StackedQKV, TensorRule, Weight


@dataclass(frozen=True)
class GroupedRows(TensorRule):
    """Some parts of each group of rows of a checkpoint tensor; here all rows of the first part, then of the next.

    Rules of several tensors may share a checkpoint tensor; each writes 0 into the rows of the others.

    Args:
        groups: number of groups.
        sizes: rows of each part of a group.
        chosen: the parts that the tensor here has, by index.
    """

    groups: int = 1
    sizes: tuple[int, ...] = (1,)
    chosen: tuple[int, ...] = (0,)

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        parts = tensors[0].unflatten(0, (self.groups, -1)).split(list(self.sizes), 1)
        return torch.cat([parts[part].flatten(0, 1) for part in self.chosen])

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        rows = [self.groups * self.sizes[part] for part in self.chosen]
        given = dict(zip(self.chosen, tensor.split(rows), strict=True))
        parts = [
            given[part].unflatten(0, (self.groups, -1))
            if part in given
            else tensor.new_zeros(self.groups, size, *tensor.shape[1:])
            for part, size in enumerate(self.sizes)
        ]
        return [torch.cat(parts, 1).flatten(0, 1)]


class GatedQKV(StackedQKV):
    """Separate query, key and value tensors in the checkpoint, of which the first has gates beside the queries."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        query, *others = tensors
        return super().read([_beside_gates(shape, 0).read([query], shape), *others], shape)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        query, *others = super().write(tensor, shape)
        return [*_beside_gates(shape, 0).write(query, shape), *others]


class OutputGate(TensorRule):
    """The gates of the outputs of the heads, which the checkpoint has beside the queries of each head."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return _beside_gates(shape, 1).read(tensors, shape)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return _beside_gates(shape, 1).write(tensor, shape)


@dataclass(frozen=True)
class StackedRows(TensorRule):
    """Separate tensors in the checkpoint, concatenated along dim 0 here.

    Args:
        sizes: rows of each.
    """

    sizes: tuple[int, ...] = (1,)

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.cat(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return list(tensor.split(list(self.sizes)))


class StackedFilters(StackedRows):
    """Separate filters of a `torch.nn.Conv1d` with a group for each channel, concatenated along dim 0 here.

    Files of transformers 5 have the same filters in three parts of equal size, wherever those of queries end.
    """

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return super().read(tensors, shape).squeeze(1)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return super().write(tensor.unsqueeze(1), shape)

    def stored_shapes(self, tensor: Weight, came: Sequence[tuple[int, ...]], shape: Shape) -> list[tuple[int, ...]]:
        """Return the shapes that the checkpoint tensors must have: as many channels as here in all of them."""
        rest = {size[1:] for size in came} == {(1, tensor.shape[1])}
        whole = rest and sum(size[0] for size in came) == tensor.shape[0]
        return list(came) if whole else super().stored_shapes(tensor, came, shape)


class ChannelFilters(TensorRule):
    """The filters of a `torch.nn.Conv1d` with a group for each channel, which have one more axis there."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0].squeeze(1)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor.unsqueeze(1)]


@dataclass(frozen=True)
class Reshaped(TensorRule):
    """A tensor whose numbers are in another shape in the checkpoint.

    Args:
        here: shape of the tensor here.
        there: shape of that of the checkpoint.
    """

    here: tuple[int, ...] = ()
    there: tuple[int, ...] = ()

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0].reshape(self.here)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor.reshape(self.there)]


def _beside_gates(shape: Shape, part: int) -> GroupedRows:
    """Return the rule of the queries, part 0, or the gates, part 1, of each head."""
    width = shape.bindable_sizes["head_width"]
    return GroupedRows("", (), shape.heads, (width, width), (part,))
