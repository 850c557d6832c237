"""Another formula in blocks of rows: weights that are no softmax, caps and sinks, for some queries at a time."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ordinate.ops.blocks import blocks
from ordinate.route import Call, Formula, Route, plain
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Outputs

# scores that a block holds of each kind
SCORES = 2**22


class Blocks(Route):
    """A changed formula for some queries at a time: nothing of queries x keys is held, whatever the scheme.

    The way back computes each block again. A block asks the scheme for its own rows, and for the keys from the first
    to the last that any of them may see by causality and window.
    """

    order = 410
    serves = frozenset({"cap", "sinks", "weights"})

    def refuses(self, call: Call) -> str | None:
        """The usual formula, dropout, few scores, and numbers that are not finite."""
        if not call.formula.changes:
            return "the formula is the usual one, which other routes compute faster"
        if torch.compiler.is_compiling():
            return "torch.compile cannot look into it"
        if call.dropout:
            return "it drops nothing"
        if call.pairs <= SCORES:
            return f"there are no more than {SCORES} scores, which one block holds"
        return None if call.finite else "q, k or v holds a number that is not finite"

    def run(self, call: Call) -> Outputs:
        """One autograd function."""
        sinks = [] if call.formula.sinks is None else [call.formula.sinks]
        return _Blocks.apply(call, call.q, call.k, call.v, *sinks, *call.at.scheme.parameters())

    def bytes(self, call: Call) -> int:
        """The scores and weights of a block."""
        return 4 * max(call.q.element_size(), 4) * min(SCORES, call.pairs)


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        ctx.at, ctx.scale, ctx.formula = call.at, call.scale, replace(call.formula, sinks=None)
        ctx.sinks = call.formula.sinks is not None
        ctx.save_for_backward(q, k, v, *learned)
        return torch.cat([_plain(part, *_cut(part, q, k, v), *learned[: ctx.sinks]) for part in _parts(ctx, q)], 2)

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        q, k, v, *learned = ctx.saved_tensors
        wide = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v, *learned)]
        formula, own = _Plain(ctx.at.scheme), 3 + ctx.sinks
        names = [name for name, _ in formula.named_parameters()]
        for part in _parts(ctx, q):
            rows, keys, *_ = part
            leaves = [x.detach().requires_grad_() for x in (*_cut(part, q, k, v), *learned)]
            with torch.enable_grad():
                parameters = dict(zip(names, leaves[own:], strict=True))
                out = torch.func.functional_call(formula, parameters, (part, *leaves[:own]))
                slopes = torch.autograd.grad(out, leaves, grad_outputs[0][:, :, rows], allow_unused=True)
            places = (wide[0][:, :, rows], wide[1][:, :, keys], wide[2][:, :, keys], *wide[3:])
            for place, slope in zip(places, slopes, strict=True):
                if slope is not None:
                    place += slope
        return None, *(x.to(y.dtype) for x, y in zip(wide, (q, k, v, *learned), strict=True))


Part = tuple[slice, slice, Placed, float, Formula]


def _parts(ctx: Any, q: Tensor) -> list[Part]:
    """The blocks of rows, each with the keys that it may see."""
    where = ctx.at.where
    size = max(1, SCORES // max(1, q.shape[0] * q.shape[1] * where.shape[1]))
    return [
        (block.rows, block.keys, ctx.at.block(block.rows, block.keys), ctx.scale, ctx.formula)
        for block in blocks(where, size)
    ]


def _cut(part: Part, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, keys, *_ = part
    return q[:, :, rows], k[:, :, keys], v[:, :, keys]


def _plain(part: Part, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Tensor:
    return plain(Call(q, k, v, part[2], part[3], 0.0, replace(part[4], sinks=sinks)))


class _Plain(nn.Module):
    """The formula as a function of the scheme's parameters too."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def forward(self, part: Part, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Tensor:
        return _plain(part, q, k, v, sinks)
