"""Attention with relative position vectors by the C++ kernel, forward and backward: O(n) memory.

Queries and keys of a block are multiplied with the vectors of its offsets. Entry c - r + n - 1 of row r of n is then
the bias of key c: the kernel reads the products as a skewed view (`ordinate.ops.skew`), and writes the gradient of
the bias into another such view, whose rows are the sums over the pairs of each offset.

Pairs beyond the reach need no bias. They share the vectors a, h and u of queries, keys and values, so that

    q.k scale + q.a + k.h = (q + h / scale) . (k + a / scale) scale - h.a / scale,     values v + u

is attention without a bias of each pair. The kernel computes it for all queries at once; both parts are put together
by the sums of their softmax, and each is differentiated with the sums of the whole.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Outputs, Queries
from ordinate.ops import relative_vector_attention
from ordinate.ops.blocks import QueryBlock
from ordinate.ops.native import attention
from ordinate.ops.offset_vectors import OffsetVectors, weights_by_offset
from ordinate.ops.relative_vector_attention import VectorEngine, VectorInputs, VectorOptions, extent
from ordinate.ops.skew import skewed_pairs, sums_by_head
from ordinate.ops.vector_ranges import OffsetRange, OffsetSplit, split_at_reach
from ordinate.ops.vector_runs import Kernel, Results, Run, joined, masked_part, span_of


def split_of(setting: VectorOptions) -> OffsetSplit:
    """Return which pairs have a bias of their own, and which share vectors."""
    return split_at_reach(setting.where, setting.reach, relative_vector_attention.ROWS)


def forward(inputs: VectorInputs, setting: VectorOptions, kernel: Kernel | None = None) -> tuple[Outputs, Results]:
    """Compute what `ordinate.ops.relative_vector_attention.forward` does, and keep the results in float32.

    Args:
        inputs: the tensors.
        setting: the other arguments.
        kernel: stands in for the kernel, to count memory; None: the kernel itself.
    """
    q, v, split = inputs.q, inputs.v, split_of(setting)
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=torch.float32)
    whole = Results(out, out.new_empty(2, *q.shape[:3]))
    for row, heads in _parts(q):
        _Heads(inputs, setting, row, heads).attend(split, whole.of_heads(row, heads), kernel)
    return out.to(q.dtype), whole


def backward(
    gradient: Outputs, inputs: VectorInputs, setting: VectorOptions, learned: bool, kept: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """Return the gradient of each input, of the table only if it is learned."""
    results = Results(*kept)
    sums, split = _Sums.zeros(inputs, setting, learned), split_of(setting)
    for row, heads in _parts(inputs.q):
        one, upstream = _Heads(inputs, setting, row, heads), gradient[row : row + 1, heads].float().contiguous()
        one.learn(split, upstream, results.of_heads(row, heads), sums.of(row, heads))
    return sums.gradients(inputs, setting)


BY_KERNEL = VectorEngine(forward, backward)


def _parts(q: Queries) -> Iterator[tuple[int, slice]]:
    """Yield sequences, and as many heads as there are threads at a time."""
    count = torch.get_num_threads()
    for row in range(q.shape[0]):
        for first in range(0, q.shape[1], count):
            yield row, slice(first, min(first + count, q.shape[1]))


class _Sums(NamedTuple):
    """Accumulated gradients, of the table for all offsets."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    vectors: OffsetVectors

    @classmethod
    def zeros(cls, inputs: VectorInputs, setting: VectorOptions, learned: bool) -> "_Sums":
        """Return zeros for each input that has a gradient, in float32."""
        q, k, v, table, *vectors = inputs
        of = table.new_zeros
        whole = of(len(table), sum(setting.where.shape) - 1) if learned else None
        turned = OffsetVectors(*(None if x is None else of(x.mT.shape) for x in vectors))
        return cls(of(q.shape), of(k.shape), of(v.shape), whole, turned)

    def of(self, row: int, heads: slice) -> "_Sums":
        """Views of the gradients of some heads of one sequence; keys and values of all its heads."""
        table = None if self.table is None else self.table[heads]
        return _Sums(self.q[row : row + 1, heads], self.k[row], self.v[row], table, self.vectors.of_heads(heads))

    def gradients(self, inputs: VectorInputs, setting: VectorOptions) -> list[Tensor | None]:
        """Return them laid out as the inputs."""
        table, (asked, held, carried) = None, self.vectors
        if self.table is not None:
            table = torch.zeros_like(inputs.table)
            own = self.table[:, extent(setting.where)[0] :][:, : table.shape[1]]
            table[:, : own.shape[1]] = own
        turned = asked, None if held is None else held.flip(2), carried
        made = (self.q, self.k, self.v, table, *(None if x is None else x.mT for x in turned))
        return [None if x is None or y is None else x.to(y.dtype) for x, y in zip(made, inputs, strict=True)]


class _Heads:
    """Some heads of one sequence, with a key head for each."""

    def __init__(self, inputs: VectorInputs, setting: VectorOptions, row: int, heads: slice) -> None:
        groups = inputs.q.shape[1] // inputs.k.shape[1]
        self.groups = torch.arange(heads.start, heads.stop, device=inputs.q.device) // groups
        self.q = inputs.q[row : row + 1, heads].float().contiguous()
        # chosen heads are laid out as the inputs are
        self.k, self.v = (x[row : row + 1, self.groups].float().contiguous() for x in (inputs.k, inputs.v))
        asked, held, carried = OffsetVectors(*inputs[4:]).of_heads(heads)
        self.vectors = OffsetVectors(asked, None if held is None else held.flip(1), carried)
        self.scale, self.low = setting.scale, extent(setting.where)[0]
        self.where = _of_row(setting.where, row)
        self.table = inputs.table.new_full((len(self.groups), sum(self.where.shape) - 1), float("-inf"))
        own = self.table[:, self.low : self.low + inputs.table.shape[1]]
        own[:] = inputs.table[heads, : own.shape[1]]

    def attend(self, split: OffsetSplit, results: Results, kernel: Kernel | None) -> None:
        """Compute outputs and softmax sums of all queries, into `results`."""
        far = [self._run(offsets, self._all).forward(kernel=kernel) for offsets in split.far]
        for cut in split.blocks:
            near = self._near(split.near, cut, kernel)
            results.of_rows(cut.rows).copy_(joined([near, *(one.of_rows(cut.rows) for one in far)]))

    def _near(self, offsets: OffsetRange, cut: QueryBlock, kernel: Kernel | None) -> Results:
        """Compute a block: a function, so that its bias is not held while that of the next is made."""
        run, vectors = self._run(offsets, cut), self._vectors(offsets, cut)
        weights = None if vectors.carried is None else self.q.new_zeros(*run.q.shape[:3], run.k.shape[2])
        made = run.forward(weights, kernel)
        if vectors.carried is not None and weights is not None:
            made.out.add_(sums_by_head(weights_by_offset(weights)[0], vectors.carried))
        return made

    def learn(self, split: OffsetSplit, upstream: Outputs, results: Results, sums: _Sums) -> None:
        """Add the gradients of all inputs, from those of the outputs, to `sums`."""
        for offsets in split.far:
            made = self._run(offsets, self._all).backward(
                (upstream, None), results, (self._numbered(offsets, sums), None)
            )
            self._learn_shared(offsets, made, sums)
            self._add(self._all, made, sums)
        for cut in split.blocks:
            self._learn_block(split.near, cut, upstream[:, :, cut.rows], results.of_rows(cut.rows), sums)

    @property
    def _all(self) -> QueryBlock:
        queries, keys = self.where.shape
        return QueryBlock(slice(0, queries), slice(0, keys), 0)

    def _vectors(self, offsets: OffsetRange, cut: QueryBlock) -> OffsetVectors:
        return self.vectors.of_block(cut, self.low, offsets.in_block(cut))

    def _shared(self, offsets: OffsetRange) -> int | None:
        return None if offsets.shared is None else offsets.shared - self.low

    def _run(self, offsets: OffsetRange, cut: QueryBlock) -> Run:
        """Return the run of the kernel for the pairs of a block at these offsets."""
        asked, held, carried = self.vectors.shared(self._shared(offsets))
        q, k, v = self.q[:, :, cut.rows], self.k[:, :, cut.keys], self.v[:, :, cut.keys]
        bias = self._vectors(offsets, cut).bias(q, k, offsets.in_block(cut)) if offsets.shared is None else None
        table = masked_part(self.table, offsets, cut)
        if asked is not None and held is not None:
            table -= (asked * held).sum(1, keepdim=True) / self.scale
        q = q if held is None else q + held[:, None] / self.scale
        k = k if asked is None else k + asked[:, None] / self.scale
        v = v if carried is None else v + carried[:, None]
        span = span_of(offsets, cut, self.where, len(self.groups))
        scoring = attention.Scoring(self.scale, bias=bias)
        return Run(q, k, v, table, self.where.block(cut.rows, cut.keys), span, scoring)

    def _learn_block(
        self, offsets: OffsetRange, cut: QueryBlock, upstream: Outputs, whole: Results, sums: _Sums
    ) -> None:
        """Accumulate the gradients of a block whose offsets have vectors of their own."""
        run, vectors, reads = self._run(offsets, cut), self._vectors(offsets, cut), offsets.in_block(cut)
        own = sums.vectors.of_block(cut, self.low, reads, 2)
        slopes = to_bias = to_weights = None
        if run.scoring.bias is not None:
            slopes = self.q.new_zeros(*run.q.shape[:3], reads.width)
            to_bias = skewed_pairs(slopes, cut.size[1], cut.size[0] - 1)
        if vectors.carried is not None:
            weights = self.q.new_zeros(*run.q.shape[:3], run.k.shape[2])
            weights *= run.forward(weights).share_of(whole)[..., None]
            to_weights = vectors.learn_sums(weights, upstream, own)
        made = run.backward((upstream, to_weights), whole, (self._numbered(offsets, sums), to_bias))
        self._learn_shared(offsets, made, sums)
        if slopes is not None:
            inputs = self.q[:, :, cut.rows], self.k[:, :, cut.keys]
            vectors.learn_bias((slopes, reads), inputs, (made.q, made.k), own)
        self._add(cut, made, sums)

    def _numbered(self, offsets: OffsetRange, sums: _Sums) -> bool:
        """Whether the gradient of the bias by offset is needed."""
        asked, held, _ = self.vectors.shared(self._shared(offsets))
        return sums.table is not None or (asked is not None and held is not None)

    def _add(self, cut: QueryBlock, made: attention.Gradients, sums: _Sums) -> None:
        """Accumulate the gradients of queries, keys, values and table of a block."""
        sums.q[:, :, cut.rows] += made.q
        sums.k[:, cut.keys].index_add_(0, self.groups, made.k[0])
        sums.v[:, cut.keys].index_add_(0, self.groups, made.v[0])
        if sums.table is not None and made.table is not None:
            sums.table[:, cut.first : cut.first + sum(cut.size) - 1] += made.table

    def _learn_shared(self, offsets: OffsetRange, made: attention.Gradients, sums: _Sums) -> None:
        """Accumulate gradients of the vectors that all pairs of a run share."""
        place = self._shared(offsets)
        (asked, held, _), own = self.vectors.shared(place), sums.vectors.shared(place, 2)
        both = made.table if asked is not None and held is not None else None
        total = None if both is None else both.sum(1, keepdim=True)
        for to, slope, other in ((own.asked, made.k, held), (own.held, made.q, asked)):
            if to is not None:
                found = slope[0].sum(1) if other is None or total is None else slope[0].sum(1) - total * other
                to += found.sum_to_size(to.shape) / self.scale
        if own.carried is not None:
            own.carried.add_(made.v[0].sum(1).sum_to_size(own.carried.shape))


def _of_row(where: Geometry, row: int) -> Geometry:
    """Return the geometry with the documents of one sequence only."""
    asks, holds = (x if x is None or len(x) == 1 else x[row : row + 1] for x in (where.q_document, where.k_document))
    return changed(where, q_document=asks, k_document=holds)
