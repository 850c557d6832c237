"""Position tables whose first rows are not those of positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight


@dataclass(frozen=True)
class CountedRows(TensorRule):
    """Rows of a position table for the tokens that are counted; the first ones are not kept.

    Args:
        padding: the padding token: a row of its number is its own, and the rows after it are for the others.
    """

    padding: int

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][self.padding + 1 :]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [torch.cat([tensor.new_zeros(self.padding + 1, tensor.shape[1]), tensor])]
