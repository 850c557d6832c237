"""Gradients of attention that is computed anew in the backward pass, one block of query rows after the other."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import QueryBlock


def block_gradients(
    inputs: Sequence[Tensor | None],
    upstream: Outputs,
    blocks: Iterable[QueryBlock],
    compute: Callable[[QueryBlock, Sequence[Tensor | None]], Outputs],
) -> list[Tensor | None]:
    """Return the gradient of each input, summed over the blocks in float32 or wider.

    Args:
        inputs: queries, keys, values, and whatever else is differentiated, or None.
        upstream: gradient of the outputs.
        blocks: the blocks.
        compute: computes the outputs of a block from its queries, keys and values, and the other inputs.
    """
    sums = [
        None if x is None else torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) for x in inputs
    ]
    for cut in blocks:
        leaves = [None if x is None else x.detach().requires_grad_() for x in _cut(cut, inputs)]
        given = [x for x in leaves if x is not None]
        with torch.enable_grad():
            out = compute(cut, leaves)
            slopes = torch.autograd.grad(out, given, upstream[:, :, cut.rows], allow_unused=True)
        # views into the sums: blocks overlap in keys, so gradients accumulate in place
        for total, slope in zip((x for x in _cut(cut, sums) if x is not None), slopes, strict=True):
            if slope is not None:
                total += slope
    return [None if x is None or y is None else x.to(y.dtype) for x, y in zip(sums, inputs, strict=True)]


def _cut(cut: QueryBlock, inputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    q, k, v, *others = inputs
    parts = ((q, cut.rows), (k, cut.keys), (v, cut.keys))
    return [*(None if x is None else x[:, :, part] for x, part in parts), *others]
