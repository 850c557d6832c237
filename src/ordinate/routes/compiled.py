"""Inside `torch.compile`: one operator, behind which the other routes choose by what they see."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ordinate.geometry import Geometry
from ordinate.route import Call, Formula, Route, routes, table_refused
from ordinate.scheme import Placed, Scheme
from ordinate.shapes import Bias, Outputs

# with fewer pairs, over batch and heads, the compiler's own code is as fast
PAIRS = 2**16


class Compiled(Route):
    """An operator that torch.compile takes as it is, on CPUs: no bias, or one that depends on the distance alone.

    What runs when the graph runs is the first other route that takes the call then, and numbers that are not finite
    are seen as ever. The bias reaches it as a table of distances, so that nothing of queries x keys is held. The way
    back computes the forward pass again.
    """

    order = 50
    serves = frozenset({"cap", "sinks"})

    def refuses(self, call: Call) -> str | None:
        """Calls outside of torch.compile, other devices, biases that are no table, dropout, small inputs."""
        if not torch.compiler.is_compiling():
            return "torch.compile is not at work"
        if call.q.device.type != "cpu":
            return "it is made for CPUs"
        if call.dropout:
            return "it drops nothing"
        if call.pairs < PAIRS:
            return f"there are fewer than {PAIRS} pairs"
        return table_refused(call)

    def run(self, call: Call) -> Outputs:
        """The operator."""
        where = call.where
        documents = [x for x in (where.q_document, where.k_document) if x is not None]
        sinks = [] if call.formula.sinks is None else [call.formula.sinks]
        # operators take numbers: a window of 0 is none, and so is a cap
        structure = [int(where.hides_future), where.start, where.window or 0, len(sinks)]
        numbers = [call.scale, call.formula.cap or 0.0]
        return _attention(call.q, call.k, call.v, call.at.table, [*sinks, *documents], structure, numbers)

    def bytes(self, call: Call) -> int:
        """The most that a route behind it holds where it holds no mask: the scores of a block of rows."""
        return max(routes()[name].bytes(call) for name in ("tiles", "native"))


@torch.library.custom_op("ordinate::attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    others: Sequence[Tensor],
    structure: Sequence[int],
    numbers: Sequence[float],
) -> Tensor:
    sinks, where = _parted(q, k, others, structure)
    return _run(_call(q, k, v, _Tabled(table).at(where), sinks, numbers)).contiguous()


@torch.library.custom_op("ordinate::attention_backward", mutates_args=())
def _attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    others: Sequence[Tensor],
    structure: Sequence[int],
    numbers: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    sinks, where = _parted(q, k, others, structure)

    def gradients() -> list[Tensor]:
        asks, holds, gives = (x.detach().requires_grad_() for x in (q, k, v))
        bias, sunk = (None if x is None else x.detach().requires_grad_() for x in (table, sinks))
        out = _run(_call(asks, holds, gives, _Tabled(bias).at(where), sunk, numbers))
        leaves = [asks, holds, gives, bias, sunk]
        found = iter(torch.autograd.grad(out, [x for x in leaves if x is not None], gradient))
        return [q.new_empty(0) if x is None else next(found).contiguous() for x in leaves]

    # inside an operator nothing is recorded for a way back, in this thread alone
    with ThreadPoolExecutor(1) as other:
        made = other.submit(gradients).result()
    return made[0], made[1], made[2], made[3], made[4]


@_attention.register_fake
def _shaped(q: Tensor, k: Tensor, v: Tensor, *_: object) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


@_attention_backward.register_fake
def _shaped_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    others: Sequence[Tensor],
    structure: Sequence[int],
    numbers: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    sinks = others[0] if structure[3] else None
    made = [q.new_empty(0) if x is None else x.new_empty(x.shape) for x in (q, k, v, table, sinks)]
    return made[0], made[1], made[2], made[3], made[4]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, others, ctx.structure, ctx.numbers = inputs
    ctx.save_for_backward(*tensors, *others)


def _back(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    q, k, v, table, *others = ctx.saved_tensors
    made = _attention_backward(gradient, q, k, v, table, others, ctx.structure, ctx.numbers)
    sunk = ctx.structure[3]
    to_others = [*made[4:][:sunk], *(None for _ in others[sunk:])]
    return *made[:3], None if table is None else made[3], to_others, None, None


_attention.register_autograd(_back, setup_context=_save)


def _run(call: Call) -> Outputs:
    return next(route for route in routes().values() if route.refusal(call) is None).run(call)


def _call(q: Tensor, k: Tensor, v: Tensor, at: Placed, sinks: Tensor | None, numbers: Sequence[float]) -> Call:
    return Call(q, k, v, at, numbers[0], 0.0, Formula(numbers[1] or None, sinks))


def _parted(
    q: Tensor, k: Tensor, others: Sequence[Tensor], structure: Sequence[int]
) -> tuple[Tensor | None, Geometry]:
    """The sinks, and the geometry, with places in memory for positions: a table of distances needs no more."""
    hides_future, start, window, sunk = structure
    asks, holds = (torch.arange(first, first + x.shape[2])[None, :, None] for x, first in ((q, start), (k, 0)))
    q_document, k_document = others[sunk:] or (None, None)
    where = Geometry(asks, holds, bool(hides_future), start, window or None, q_document, k_document, ordered=True)
    return others[0] if sunk else None, where


class _Tabled(Scheme):
    """A bias that comes as a table of distances.

    Args:
        table: entry x is for keys x - queries + 1 places ahead; None: no bias.
    """

    shift_invariant = True

    def __init__(self, table: Tensor | None) -> None:
        super().__init__()
        self.table = table

    @property
    def hooks(self) -> tuple[str, ...]:
        return () if self.table is None else ("bias",)

    def bias(self, where: Geometry) -> Bias | None:
        if self.table is None:
            return None
        # the newest key that a table knows stands `queries` - 1 before its end
        return self.table[:, self.origin - where.offset[0, ..., 0]][None]

    def at(self, where: Geometry) -> Placed:
        self.origin = where.shape[0] - 1 + where.start
        return super().at(where)
