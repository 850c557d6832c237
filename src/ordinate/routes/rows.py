"""Any scheme in blocks of rows: the formula for some queries at a time."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ordinate.geometry import Geometry
from ordinate.ops import rows
from ordinate.ops.blocks import Block, blocks
from ordinate.route import Call, Route
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Bias, Keys, Outputs, Queries, Values, Weights

# queries that a block has at most, and scores that it holds of each kind
ROWS, SCORES = 256, 2**23
# with fewer pairs, over batch and heads, the steps of Python cost more than they save
PAIRS = 2**21
# hooks whose results have the size of queries x keys
WIDE = frozenset({"score", "bias", "content_bias", "carry"})


class Rows(Route):
    """The plain formula for some queries at a time: nothing of queries x keys is held, whatever the scheme.

    The way back computes each block again. A block asks the scheme for its own rows, and for the keys from the first
    to the last that any of them may see by causality and window. All is computed in float32 at least.
    """

    order = 400

    def refuses(self, call: Call) -> str | None:
        """Schemes that need no block, dropout, few scores, and numbers that are not finite."""
        if not WIDE & set(call.at.scheme.hooks):
            return "the scheme adds nothing to the scores"
        if torch.compiler.is_compiling():
            return "torch.compile cannot look into it"
        if call.dropout:
            return "it drops nothing"
        if call.pairs < PAIRS:
            return f"there are fewer than {PAIRS} pairs"
        return None if call.finite else "q, k or v holds a number that is not finite"

    def run(self, call: Call) -> Outputs:
        """One autograd function."""
        return _Rows.apply(call, call.q, call.k, call.v, *call.at.scheme.parameters())

    def bytes(self, call: Call) -> int:
        """What is added to the scores of a block, its weights, and wider copies of keys and values."""
        size = max(call.q.element_size(), 4)
        return size * (4 * min(SCORES, call.pairs) + call.k.numel() + call.v.numel())


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        ctx.at, ctx.scale = call.at, call.scale
        ctx.save_for_backward(q, k, v, *learned)
        scheme, keys, values = call.at.scheme, rows.wide(k), rows.wide(v)
        out = q.new_empty(*q.shape[:3], v.shape[3])
        for block in _blocks(call.at, q):
            at, k, v = call.at.block(block.rows, block.keys), keys[:, :, block.keys], values[:, :, block.keys]
            asked = rows.wide(q[:, :, block.rows])
            part = _rows(at, asked, k, v, call.scale, _Added(scheme)(at, asked, k, call.scale), out.dtype)
            weights = part.all_weights() if "carry" in scheme.hooks else None
            carried = None if weights is None else scheme.carry(weights, at.where)
            out[:, :, block.rows] = part.mixed(weights) if carried is None else part.mixed(weights) + carried
        return out

    @staticmethod
    @once_differentiable
    # pyrefly: ignore[bad-override]  (the decorator hides the names of the parameters)
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        q, k, v, *learned = ctx.saved_tensors
        way_back = _WayBack(ctx.at, ctx.scale, q, k, v, learned)
        for block in _blocks(ctx.at, q):
            way_back.add(block, rows.wide(grad_outputs[0][:, :, block.rows]))
        return None, *way_back.gradients


class _WayBack:
    """The gradients of queries, keys, values and parameters, block by block."""

    def __init__(self, at: Placed, scale: float, q: Queries, k: Keys, v: Values, learned: Sequence[Tensor]) -> None:
        self.at, self.scale, self.learned = at, scale, learned
        self.types = [x.dtype for x in (q, k, v, *learned)]
        self.q, self.k, self.v = q, rows.wide(k), rows.wide(v)
        self.names = [name for name, _ in _Added(at.scheme).named_parameters()]
        self.to_q = torch.empty_like(self.q, dtype=self.k.dtype)
        # transposed, since products of that form are faster
        self.to_k, self.to_v = (x.new_zeros(x.mT.shape) for x in (self.k, self.v))
        wide = [torch.promote_types(x.dtype, torch.float32) for x in learned]
        self.sums = [torch.zeros_like(x, dtype=type) for x, type in zip(learned, wide, strict=True)]

    @property
    def gradients(self) -> list[Tensor]:
        made = (self.to_q, self.to_k.mT, self.to_v.mT, *self.sums)
        return [x.to(type) for x, type in zip(made, self.types, strict=True)]

    def add(self, block: Block, upstream: Outputs) -> None:
        """What a block gives, its weights computed again."""
        at = self.at.block(block.rows, block.keys)
        q, k, v = rows.wide(self.q[:, :, block.rows]), self.k[:, :, block.keys], self.v[:, :, block.keys]
        leaves = [x.detach().requires_grad_() for x in (q, k, *self.learned)]
        with torch.enable_grad():
            added = self._called(_Added(at.scheme), leaves[2:], (at, *leaves[:2], self.scale))
        part = _rows(at, q, k, v, self.scale, None if added is None else added.detach(), self.q.dtype)
        to_weights = self._carried(part, at, upstream) if "carry" in at.scheme.hooks else None
        to_k, to_v = self.to_k[..., block.keys], self.to_v[..., block.keys]
        to_q, to_added = part.backward(upstream, to_weights, to_k, to_v)
        if added is not None and to_added is not None and added.requires_grad:
            more_q, more_k, *more = torch.autograd.grad(added, leaves, to_added, allow_unused=True)
            to_q = to_q if more_q is None else to_q + more_q
            to_k += 0.0 if more_k is None else more_k.mT
            self._add(more)
        self.to_q[:, :, block.rows] = to_q

    def _carried(self, part: rows.Rows, at: Placed, upstream: Outputs) -> Weights | None:
        """What the weights are given by what they carry."""
        weights = part.all_weights().requires_grad_()
        leaves = [weights, *(x.detach().requires_grad_() for x in self.learned)]
        with torch.enable_grad():
            carried = self._called(_Carried(at.scheme), leaves[1:], (leaves[0], at.where))
        if carried is None:
            return None
        to_weights, *more = torch.autograd.grad(carried, leaves, upstream, allow_unused=True)
        self._add(more)
        return to_weights

    def _called(self, module: nn.Module, learned: Sequence[Tensor], inputs: tuple[Any, ...]) -> Tensor | None:
        # the parameters that the forward pass had, whatever the module holds by now
        return torch.func.functional_call(module, dict(zip(self.names, learned, strict=True)), inputs)

    def _add(self, more: Sequence[Tensor | None]) -> None:
        for total, one in zip(self.sums, more, strict=True):
            if one is not None:
                total += one


def _blocks(at: Placed, q: Tensor) -> list[Block]:
    size = SCORES // max(1, q.shape[0] * q.shape[1] * at.where.shape[1])
    return blocks(at.where, min(max(1, size), ROWS))


def _rows(
    at: Placed, q: Queries, k: Keys, v: Values, scale: float, added: Bias | None, kept: torch.dtype
) -> rows.Rows:
    own = "score" in at.scheme.hooks
    return rows.Rows(q, k, v, None if own else scale, added, rows.hidden_pairs(at.where, q.dtype), kept)


class _Added(nn.Module):
    """What a scheme adds to the scores, as a function of its parameters too; the scores, if it has its own."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def forward(self, at: Placed, q: Queries, k: Keys, scale: float) -> Bias | None:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        own = self.scheme.score(q, k, at.where)
        parts = None if own is None else own * scale, at.bias, self.scheme.content_bias(q, k, at.where)
        made = [part for part in parts if part is not None]
        return sum(made[1:], made[0]).to(q.dtype) if made else None


class _Carried(nn.Module):
    """What a scheme carries to the output, likewise."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme

    def forward(self, weights: Weights, where: Geometry) -> Outputs | None:
        return self.scheme.carry(weights, where)
