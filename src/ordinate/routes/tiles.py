"""Blocks of rows, with a bias that depends on the distance alone."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.geometry import Geometry
from ordinate.ops import tiles
from ordinate.ops.product import onednn_is_faster
from ordinate.route import Call, Route, table_refused
from ordinate.shapes import Outputs

# with fewer pairs in a head the steps of Python cost more than they save; without a bias there is less to save
PAIRS = 2**16


class Tiles(Route):
    """Row by row of blocks in plain PyTorch, on CPUs: a bias costs next to nothing, and neither does its gradient.

    A bias that depends on the distance alone is read from a table as a strided view, and gets its gradient by
    diagonals. What a block of rows needs is held, nothing of queries x keys; dropped
    weights are drawn again on the way back. All is computed in float32 at least.
    Where oneDNN multiplies faster than PyTorch's own choice (it does on AMD processors), attention without a bias is
    faster this way too.
    """

    order = 300

    def refuses(self, call: Call) -> str | None:
        """Other devices, biases that are no table, small inputs, and numbers that are not finite."""
        if call.q.device.type != "cpu":
            return "it is made for CPUs"
        if torch.compiler.is_compiling():
            return "torch.compile cannot look into it"
        reason = table_refused(call)
        if reason is not None:
            return reason
        biased = "bias" in call.at.scheme.hooks
        fewest = PAIRS if biased else 4 * PAIRS
        if math.prod(call.where.shape) < fewest:
            return f"there are fewer than {fewest} pairs in a head"
        if call.at.table is not None and bool(call.at.table.isneginf().any()):
            return "a bias of -inf may leave nothing to a query"
        if not biased and not onednn_is_faster():
            return "without a bias PyTorch's own attention is as fast here"
        return None if call.finite else "q, k or v holds a number that is not finite"

    def run(self, call: Call) -> Outputs:
        """One autograd function."""
        wide = torch.promote_types(call.q.dtype, torch.float32)
        table = tiles.masked_table(call.at.table, call.where, call.q.shape[1], wide)
        drop = tiles.Drop(call.dropout, int(torch.randint(2**62, ()))) if call.dropout else None
        return _Tiles.apply(call.q, call.k, call.v, table, call.where, call.scale, drop)

    def bytes(self, call: Call) -> int:
        """The scores of a block, what is dropped of them, and wider copies of a head."""
        size = max(call.q.element_size(), 4)
        head = sum(x.shape[2] * x.shape[3] for x in (call.q, call.k, call.v))
        return size * ((3 if call.dropout else 2) * tiles.ROWS * call.where.shape[1] + head)


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor,
        where: Geometry,
        scale: float,
        drop: tiles.Drop | None,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, table)
        ctx.where, ctx.scale, ctx.drop = where, scale, drop
        return tiles.forward(q, k, v, table, where, scale, drop)

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        learned = ctx.needs_input_grad[3]
        made = tiles.backward(grad_outputs[0], ctx.saved_tensors, ctx.where, ctx.scale, learned, ctx.drop)
        return *made, None, None, None
