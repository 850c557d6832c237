"""Runs of the C++ attention kernel, each of which computes some of the pairs of a softmax, and their sum."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, OffsetTable, Outputs, Queries, Values, Weights
from ordinate.ops.blocks import QueryBlock
from ordinate.ops.decay_cutoff import KeyRanges
from ordinate.ops.native import attention
from ordinate.ops.vector_ranges import OffsetRange

# arguments and results of `ordinate.ops.native.attention.forward`
Kernel = Callable[..., tuple[Outputs, attention.Softmax, attention.RoundingErrors | None]]


class Results(NamedTuple):
    """Results of one run, or of several together, in float32.

    Args:
        out: the outputs.
        softmax: largest score and inverse sum of each query; 0 and 0 of a query without keys.
    """

    out: Outputs
    softmax: attention.Softmax

    def of_heads(self, row: int, heads: slice) -> "Results":
        """Views of those of some heads of one sequence."""
        return Results(self.out[row : row + 1, heads], self.softmax[:, row : row + 1, heads])

    def of_rows(self, rows: slice) -> "Results":
        """Views of those of some queries."""
        return Results(self.out[:, :, rows], self.softmax[..., rows])

    def share_of(self, whole: "Results") -> Float[Tensor, "b h i"]:
        """Return the part of each query's softmax, over all keys, that the keys of this run have."""
        top, share = self.softmax
        grown = torch.exp(top - whole.softmax[0]) * whole.softmax[1] / share.masked_fill(share == 0.0, 1.0)
        return grown.masked_fill(share == 0.0, 0.0)

    def copy_(self, other: "Results") -> None:
        """Write those of another."""
        self.out.copy_(other.out)
        self.softmax.copy_(other.softmax)


class Run(NamedTuple):
    """One run of the kernel.

    Args:
        q: queries of some heads of one sequence, float32.
        k: keys, as many heads.
        v: values.
        table: bias by offset; -inf for pairs of other runs.
        where: the geometry.
        span: range of keys of each block of queries of the kernel.
        scoring: scale and bias of each pair.
    """

    q: Queries
    k: Keys
    v: Values
    table: OffsetTable
    where: Geometry
    span: KeyRanges
    scoring: attention.Scoring

    def forward(self, weights: Weights | None = None, kernel: Kernel | None = None) -> Results:
        """Run it.

        Args:
            weights: zeros that receive the weights; None: they are not needed.
            kernel: stands in for the kernel; None: the kernel itself.
        """
        scoring, run = self.scoring._replace(weights=weights), attention.forward if kernel is None else kernel
        return Results(*run(*self[:4], self.where, scoring, self.span, False)[:2])

    def backward(
        self, upstream: tuple[Outputs, Weights | None], whole: Results, learned: tuple[bool, Bias | None]
    ) -> attention.Gradients:
        """Return the gradients.

        Args:
            upstream: gradients of outputs and weights.
            whole: results of all runs together, the outputs with what the weights add to them.
            learned: as in `ordinate.ops.native.attention.backward`.
        """
        # the outputs have what weights add to them: the kernel, which would count that again, is given weights of 0
        none = None if upstream[1] is None else torch.zeros_like(upstream[1])
        saved = self.q, self.k, self.v, self.table.flip(1), whole.out, whole.softmax.contiguous(), None
        return attention.backward(
            upstream, saved, self.where, self.scoring._replace(weights=none), self.span, learned
        )


def span_of(offsets: OffsetRange, cut: QueryBlock, where: Geometry, heads: int) -> KeyRanges:
    """Return the range of a block's keys for each block of queries of the kernel.

    Args:
        offsets: offsets of the pairs that are computed.
        cut: queries and keys of the run.
        where: the geometry of all queries and keys.
        heads: number of heads.
    """
    rows, sides = range(cut.rows.start, cut.rows.stop, attention.ROWS), []
    for first in rows:
        keys = offsets.keys(slice(first, min(first + attention.ROWS, cut.rows.stop)), where)
        # counted from the first key of the run
        sides.append([min(max(key - cut.keys.start, 0), cut.size[1]) for key in (keys.start, keys.stop)])
    first, last = torch.tensor(sides, device=where.q_pos.device).t().expand(1, heads, 2, -1).unbind(2)
    return first.contiguous(), last.contiguous()


def masked_part(table: OffsetTable, offsets: OffsetRange, cut: QueryBlock) -> Float[Tensor, "h read"]:
    """Return the entries of a table of all offsets that a block reads; -inf where its pairs are not computed."""
    read = slice(cut.first, cut.first + sum(cut.size) - 1)
    low, high = (min(max(x, read.start), read.stop) for x in (offsets.begin, offsets.stop))
    made = table.new_full((len(table), read.stop - read.start), float("-inf"))
    made[:, low - read.start : high - read.start] = table[:, low:high]
    return made


def joined(runs: Sequence[Results]) -> Results:
    """Results of the softmax over the keys of several runs together."""
    if len(runs) == 1:
        return runs[0]
    tops = [own.softmax[0].masked_fill(own.softmax[1] == 0.0, float("-inf")) for own in runs]
    # of a query without keys, where -inf - -inf would be NaN
    top = reduce(torch.maximum, tops).clamp_(min=torch.finfo(torch.float32).min)
    masses = [
        torch.exp(own - top) / run.softmax[1].masked_fill(run.softmax[1] == 0.0, 1.0)
        for own, run in zip(tops, runs, strict=True)
    ]
    total = sum(masses[1:], masses[0])
    empty = total == 0.0
    share = total.masked_fill(empty, 1.0).reciprocal()
    outs: list[Tensor] = [run.out * (mass * share)[..., None] for run, mass in zip(runs, masses, strict=True)]
    softmax = torch.stack([top.masked_fill(empty, 0.0), share.masked_fill(empty, 0.0)])
    return Results(sum(outs[1:], outs[0]), softmax)
