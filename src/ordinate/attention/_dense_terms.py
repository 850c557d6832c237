"""What a scheme adds to the scores of a block of queries and to its outputs, for every pair of the block."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall
from ordinate.attention._double_backward import SchemeFormula, TableCall, scheme_formula, table_formula
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.replaced_parameters import replaced
from ordinate.core.shapes import Bias, Keys, OffsetTable, Outputs, Queries, Weights
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.blocks import QueryBlock, offset_geometry
from ordinate.ops.double_backward import Tensors
from ordinate.ops.heads import repeat_keys
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.ops.relative import RelativeVectors, VectorPerOffset, check_table
from ordinate.ops.skew import ClippedVectors, pair_products, pair_sums
from ordinate.schemes._fast_forms import depends_on_offsets, vectors_of

# keys per product with relative vectors of keys: offsets that a product computes but does not use grow with it
KEYS = 128


class Terms(NamedTuple):
    """What is added in a block.

    Args:
        table: bias by memory offset; None: no such bias.
        bias: bias of each pair; None: no such bias.
        carry: returns what is added to the outputs, from the weights; None: nothing is.
    """

    table: OffsetTable | None
    bias: Bias | None
    carry: Callable[[Weights], Outputs | None] | None

    @property
    def largest(self) -> float:
        """Upper bound of what is added to a score; NaN if there is one."""
        return sum(x.detach().amax().item() for x in (self.table, self.bias) if x is not None)


class TermSource(ABC):
    """Makes the terms of each block of a call from tensors, with respect to which they can be differentiated."""

    learned: Sequence[Tensor | None]
    """The tensors that terms depend on, beside queries, keys and weights."""

    @abstractmethod
    def of(self, part: AttentionCall, cut: QueryBlock, learned: Sequence[Tensor | None]) -> Terms:
        """Return the terms of a block, whose queries and keys are those of `part`, from other learned tensors."""

    @abstractmethod
    def formula(self, inputs: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
        """Plain formula of the whole call, of q, k, v, the sinks or None, and the learned tensors."""


def term_source(call: AttentionCall) -> TermSource:
    """Return the source of the terms of a call: its relative vectors, or else the hooks of its scheme."""
    vectors = _vectors(call)
    return HookTerms(call) if vectors is None else VectorTerms(call, vectors)


class HookTerms(TermSource):
    """Terms by the hooks of the scheme, which depend on its parameters."""

    def __init__(self, call: AttentionCall) -> None:
        # not the call, whose tensors autograd would hold beside those that it saves
        self.at, self.scale, self.options = call.at, call.scale, changed(call.score_options, sinks=None)
        self.module = SchemeFormula(call.at.scheme)
        self.learned = tuple(self.module.parameters())

    def of(self, part: AttentionCall, cut: QueryBlock, learned: Sequence[Tensor | None]) -> Terms:
        """Call the hooks for the pairs of the block."""
        if learned is not self.learned:
            scheme = replaced(self.module, [x for x in learned if x is not None]).scheme
            part = changed(part, at=part.at.with_scheme(scheme))
        scheme, where = part.at.scheme, part.where
        carry = partial(scheme.value_bias, where=where) if "value_bias" in scheme.hooks else None
        return Terms(part.at.offset_table, _scheme_bias(part, self.scale), carry)

    def formula(self, inputs: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
        """Return the formula with the scheme."""
        q, k, v, sinks, *learned = inputs
        given = () if sinks is None else (sinks,)
        whole = scheme_formula(self.at, self.scale, self.options, sinks is not None)
        return whole((q, k, v, *given, *learned), upstream)


class VectorTerms(TermSource):
    """Terms by relative position vectors, which are multiplied with queries, keys and weights.

    Products are read as a skewed view (`ordinate.ops.skew`), so that nothing is gathered for each pair.

    Args:
        call: the call.
        vectors: the scheme's vectors of all offsets.
    """

    def __init__(self, call: AttentionCall, vectors: RelativeVectors) -> None:
        self.where, self.scale, self.reach = call.where, call.scale, vectors.reach
        table = call.at.offset_table
        table = vectors.bias if table is None else table if vectors.bias is None else table + vectors.bias
        table = masked_table(table, call.where, call.q.shape[1], torch.float32)
        self.learned = table, vectors.query_vectors, vectors.key_vectors, vectors.value_vectors

    def of(self, part: AttentionCall, cut: QueryBlock, learned: Sequence[Tensor | None]) -> Terms:
        """Multiply the queries and keys of the block with the vectors of their offsets."""
        read = slice(cut.first, cut.first + sum(cut.size) - 1)
        table, asked, held, carried = (x if x is None or x.shape[1] == 1 else x[:, read] for x in learned)
        where, heads = part.where, part.q.shape[1]
        made = []
        if asked is not None:
            made.append(self._query_bias(part.q.float(), asked, where))
        if held is not None:
            made.append(self._key_bias(repeat_keys(part.k, heads).float(), held, where))
        bias = sum(made[1:], made[0]) if made else None
        return Terms(table, bias, None if carried is None else partial(self._carry, carried, where))

    def formula(self, inputs: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
        """Return the formula with a table and vectors by offset."""
        q, k, v, sinks, table, *vectors = inputs
        return table_formula(TableCall(self.where, self.scale))((q, k, v, table, sinks, *vectors), upstream)

    def _query_bias(self, q: Queries, vectors: VectorPerOffset, where: Geometry) -> Bias:
        queries, keys = where.shape
        return pair_products(q, _needed(vectors, self.reach, where), keys, queries - 1)

    def _key_bias(self, k: Keys, vectors: VectorPerOffset, where: Geometry) -> Bias:
        """Multiply keys and vectors, some keys at a time: each is multiplied with all offsets of its range."""
        if vectors.shape[1] == 1:
            return pair_products(k, ClippedVectors(vectors.float()), where.shape[0], 0).mT
        made = []
        queries = where.shape[0]
        for keys in _key_ranges(where, self.reach):
            part, count = where.block(slice(None), keys), keys.stop - keys.start
            read = vectors[:, keys.start : keys.stop + queries - 1]
            # from a key's side, offsets run the other way
            by_offset = _clipped(read, self.reach, part).flip()
            made.append(pair_products(k[:, :, keys], by_offset, queries, count - 1).mT)
        return torch.cat(made, -1)

    def _carry(self, vectors: VectorPerOffset, where: Geometry, weights: Weights) -> Outputs:
        return pair_sums(weights, _needed(vectors, self.reach, where), where.shape[0] - 1)


def _vectors(call: AttentionCall) -> RelativeVectors | None:
    """Return the scheme's relative vectors for all offsets; None if it has none, or not for these positions."""
    scheme, where = call.at.scheme, call.where
    if "score" in scheme.hooks or not (where.consecutive and depends_on_offsets(scheme)):
        return None
    made = vectors_of(scheme, offset_geometry(where, 0, sum(where.shape) - 1))
    if made is None:
        return None
    for vectors, width in (
        (made.query_vectors, call.q.shape[3]),
        (made.key_vectors, call.q.shape[3]),
        (made.value_vectors, call.v.shape[3]),
    ):
        if vectors is not None:
            check_table(vectors, call.q.shape[1], width)
    return made


def _key_ranges(where: Geometry, reach: float) -> list[slice]:
    """Split the keys of a block: those beyond the reach of all queries on either side; between, `KEYS` at a time."""
    queries, keys = where.shape
    size = math.ceil(min(reach, sum(where.shape) + abs(where.start)))
    near = min(max(where.start - size + 1, 0), keys)
    far = min(max(where.start + queries + size - 1, near), keys)
    starts = [0] * (near > 0) + list(range(near, far, KEYS)) + [far] * (far < keys)
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], keys], strict=True)]


def _stop(where: Geometry) -> int:
    """Return the end of the entries needed of a table of offsets; queries - 1 is that of the first query and key.

    With a causal mask, where the last query sees all keys, offsets of the future are left out, but for one: with it
    the rows of a skewed view do not overlap.
    """
    queries, keys = where.shape
    cut = where.is_causal and where.start + queries == keys
    return min(keys + 1, queries + keys - 1) if cut else queries + keys - 1


def _needed(vectors: VectorPerOffset, reach: float, where: Geometry) -> ClippedVectors:
    """Return the vectors of the offsets needed by queries."""
    return _clipped(vectors if vectors.shape[1] == 1 else vectors[:, : _stop(where)], reach, where)


def _clipped(vectors: VectorPerOffset, reach: float, where: Geometry) -> ClippedVectors:
    """Return vectors by offset, those beyond the reach only once."""
    if vectors.shape[1] == 1:
        return ClippedVectors(vectors.float())
    stop, own = vectors.shape[1], where.start + where.shape[0] - 1
    size = math.ceil(min(reach, stop + abs(own)))
    first = min(max(own - size, 0), stop - 1)
    last = max(min(own + size + 1, stop), first + 1)
    return ClippedVectors(vectors[:, first:last].float(), first, stop - last)


def _scheme_bias(call: AttentionCall, scale: float) -> Bias | None:
    """Return what the scheme's hooks add to the scores, its own scores scaled, but for a bias by memory offset."""
    scheme, at, where = call.at.scheme, call.at, call.where
    own = content = None
    if {"score", "content_bias"} & set(scheme.hooks):
        q, k = call.q.float(), repeat_keys(call.k, call.q.shape[1]).float()
        own, content = scheme.score(q, k, where), scheme.content_bias(q, k, where)
    parts = None if own is None else own * scale, at.bias if at.offset_table is None else None, content
    made = [part.float() for part in parts if part is not None]
    if not made:
        return None
    whole = sum(made[1:], made[0])
    # the kernel reads the biases of a row side by side
    return contiguous_channels(whole)
