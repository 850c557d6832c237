"""Allocation of what the kernels of linear attention with decay write, also of tensors without values."""

from torch import Tensor

# tokens of a chunk
CHUNK = 32


def empty_states(v: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate the output, the last state, the state before each chunk, and the products of each chunk.

    Args:
        v: values; heads lie beside each other in the output, as the projection behind it reads them.
        start: the first state.
    """
    batch, heads, tokens, depth = v.shape
    chunks = -(-tokens // CHUNK)
    y = v.new_empty(batch, tokens, heads, depth).transpose(1, 2)
    states = v.new_empty(batch * heads, chunks, *start.shape[2:])
    products = v.new_empty(batch * heads, chunks, CHUNK, CHUNK)
    return y, v.new_empty(start.shape), states, products
