"""Allocation of what the kernels write: shapes, dtypes and strides, also of tensors without values."""

import torch
from torch import Tensor


def empty_outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate output and log-sum-exp: heads lie beside each other, as the projection after attention reads them."""
    batch, heads, queries, _ = q.shape
    out = q.new_empty(batch, queries, heads, v.shape[3]).transpose(1, 2)
    return out, q.new_empty(batch, heads, queries, dtype=torch.float32)


def empty_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Allocate the gradients of tensors, contiguous."""
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors)
