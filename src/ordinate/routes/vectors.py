"""Blocks of rows, with vectors that belong to distances."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinate.ops import relative, vectors
from ordinate.ops.blocks import along
from ordinate.ops.tiles import masked_table
from ordinate.route import Call, Route
from ordinate.shapes import Outputs

# with fewer pairs in a head the steps of Python cost more than they save
PAIRS = 2**16
CONTENT = frozenset({"content_bias", "carry"})


class Vectors(Route):
    """Row by row of blocks in plain PyTorch, on CPUs, for schemes with a vector for each offset (`Scheme.vectors`).

    Queries and keys are multiplied with the vectors of all distances, and the product is read as a strided view that
    begins one column later in each row: no vector and no number is picked pair by pair, and nothing of queries x keys
    is held. The way back is the same. All is computed in float32 at least.
    """

    order = 360

    def refuses(self, call: Call) -> str | None:
        """Other devices, schemes and geometries without such vectors, dropout, small inputs, numbers not finite."""
        if call.q.device.type != "cpu":
            return "it is made for CPUs"
        if torch.compiler.is_compiling():
            return "torch.compile cannot look into it"
        scheme, where = call.at.scheme, call.where
        if not CONTENT & set(scheme.hooks):
            return "the scheme reads no content"
        if "score" in scheme.hooks:
            return "the scheme's score is no sum of products"
        if not (where.ordered and scheme.shift_invariant):
            return "offsets are no distances in memory in this geometry"
        if call.at.table is not None and bool(call.at.table.isneginf().any()):
            return "a bias of -inf may leave nothing to a query"
        if call.dropout:
            return "it drops nothing"
        if math.prod(where.shape) < PAIRS:
            return f"there are fewer than {PAIRS} pairs in a head"
        if scheme.vectors(along(where, 0, 1)) is None:
            return "the scheme has no vector for each offset"
        return None if call.finite else "q, k or v holds a number that is not finite"

    def run(self, call: Call) -> Outputs:
        """One autograd function."""
        where, heads, width = call.where, call.q.shape[1], call.q.shape[3]
        wide = torch.promote_types(call.q.dtype, torch.float32)
        low, high = vectors.extent(where)
        made = call.at.scheme.vectors(along(where, low, high)) or relative.Vectors()
        table = masked_table(call.at.table, where, heads, wide)
        # one entry beyond the last is read, and not used
        table = torch.nn.functional.pad(table, (0, 1))[:, low:high]
        table = table if made.number is None else table + made.number.to(wide)
        for vector, columns in ((made.asked, width), (made.held, width), (made.carried, call.v.shape[3])):
            if vector is not None:
                relative.check_fit(vector, heads, columns)
        laid = (None if x is None else x.to(wide).contiguous() for x in (made.asked, made.held, made.carried))
        setting = vectors.Setting(where, call.scale, made.reach)
        return _Vectors.apply(setting, call.q, call.k, call.v, table, *laid)

    def bytes(self, call: Call) -> int:
        """The scores of a block and their products with the vectors, wider copies of a head, and the vectors."""
        size, (rows, keys) = max(call.q.element_size(), 4), call.where.shape
        head = sum(x.shape[2] * x.shape[3] for x in (call.q, call.k, call.v))
        held = call.q.shape[1] * (rows + keys) * (2 * call.q.shape[3] + call.v.shape[3])
        return size * (4 * vectors.ROWS * keys + head + held)


class _Vectors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setting: vectors.Setting, *inputs: Any) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.setting = setting
        return vectors.forward(vectors.Inputs(*inputs), setting)

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs = vectors.Inputs(*ctx.saved_tensors)
        # the table stands behind the setting, q, k and v
        learned = ctx.needs_input_grad[4]
        return None, *vectors.backward(grad_outputs[0], inputs, ctx.setting, learned)
