"""Allocation of what the kernels write: shapes, dtypes and strides, also of tensors without values."""

import torch
from torch import Tensor

# entries of a table of biases beyond each end, which repeat it: as many as the largest tile has rows and columns
TABLE_PADDING = 256


def empty_outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate output and log-sum-exp: heads lie beside each other, as the projection after attention reads them."""
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[3]).transpose(1, 2)
    return out, q.new_empty(batch, heads, queries, dtype=torch.float32)


def empty_kept(q: Tensor, k: Tensor, table: Tensor | None, *, skips: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate what the backward pass needs again: `ordinate.ops.triton.attention.Kept`."""
    poison = k.new_empty(k.shape[:3], dtype=torch.float32)
    longer = 0 if table is None else (table.shape[0], table.shape[1] + 2 * TABLE_PADDING)
    return poison, q.new_empty(q.shape[:3] if skips else 0, dtype=torch.int32), poison.new_empty(longer)


def empty_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Allocate the gradients of tensors, contiguous."""
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors)
