"""Attention in C++ with a bias of each pair of a query and a key, held in memory: for short texts; on CPUs."""

import math
from typing import NamedTuple

from ordinate.attention._backend import (
    QUADRATIC_HOOKS,
    AttentionCall,
    Backend,
    few_head_pairs,
    reference_attention,
)
from ordinate.attention._native import native_attention, native_workspace, stays_in_range, unfit, unsupported
from ordinate.attention._workspace import peak_and_rest
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Bias, OffsetTable, Outputs
from ordinate.core.tensors import contiguous_channels
from ordinate.ops.blocks import offset_geometry
from ordinate.ops.heads import repeat_keys
from ordinate.ops.native import attention, build
from ordinate.ops.relative import RelativeVectors, VectorPerOffset, check_table
from ordinate.ops.skew import ClippedVectors, pair_products, pair_sums
from ordinate.schemes._fast_forms import depends_on_offsets, vectors_of

# with fewer query-key pairs, over batch and heads, compiling the kernel is not worth the wait; with more, their
# memory counts
MIN_PAIRS, MAX_PAIRS = 2**16, 2**24
# with fewer in a head PyTorch's attention with the bias as a tensor is faster, unless that has relative vectors
MIN_HEAD_PAIRS, MIN_CONTENT_PAIRS = 2**12, 2**10
# the kernel returns weights of one tile of keys; with more keys, blocks of rows are faster for some schemes (CoPE)
MAX_KEYS = attention.COLUMNS


class DenseBias(Backend):
    """The C++ kernel with a dense bias in float32, for any scheme, on CPUs and while there are few pairs.

    The scheme computes what it adds to the scores for all pairs; relative position vectors (Shaw, Transformer-XL,
    DeBERTa) are multiplied with queries and keys at once and read as a skewed view. The kernel adds it to the scores
    and returns its gradient, and the attention weights where vectors are added to the values (Shaw).
    """

    priority = 350
    supported_options = frozenset({"sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, float64, no bias, dropout, few or many pairs, and machines without a compiler."""
        reason = unsupported(call)
        if reason is not None:
            return reason
        if not QUADRATIC_HOOKS & set(call.at.scheme.hooks):
            return "the scheme adds nothing to the scores"
        if not MIN_PAIRS <= call.num_pairs <= MAX_PAIRS:
            return f"there are fewer than {MIN_PAIRS} or more than {MAX_PAIRS} query-key pairs"
        if call.k.shape[2] > MAX_KEYS:
            return f"there are more than {MAX_KEYS} keys"
        return build.unavailable_reason("attention") or unfit(call)

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave very short texts to PyTorch, but those with relative vectors."""
        scheme = call.at.scheme
        if scheme.hooks == ("bias",):
            return few_head_pairs(call, MIN_HEAD_PAIRS)
        few = few_head_pairs(call, MIN_CONTENT_PAIRS)
        return few if few and vectors_of(scheme, offset_geometry(call.where, 0, 1)) is None else None

    def run(self, call: AttentionCall) -> Outputs:
        """Compute the bias of all pairs, and attention with it."""
        scheme, where, terms = call.at.scheme, call.where, _terms(call)
        largest = sum(x.detach().amax().item() for x in (terms.table, terms.bias) if x is not None)
        if not stays_in_range(call, largest):
            return reference_attention(call)
        if "score" in scheme.hooks:
            call = changed(call, scale=0.0)
        out, weights = native_attention(call, terms.table, terms.bias, terms.with_weights)
        if weights is None:
            return out
        if terms.values is None:
            carried = scheme.value_bias(weights, where)
        else:
            carried = pair_sums(weights, terms.values, where.shape[0] - 1)
        return out if carried is None else (out + carried).to(out.dtype)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """What `native` holds, and the bias and weights of all pairs, or what the scheme needs to make them.

        The bias is made and what is held meanwhile is counted.
        """
        fresh, found = changed(call, at=call.at.block(slice(None))), []
        most, held = peak_and_rest(lambda: found.append(_terms(fresh)) or found, call.where.shape[0])
        (terms,), rows = found, math.prod(call.q.shape[:3])
        # the weights, and their sums by offset
        columns = call.k.shape[2] + (0 if terms.values is None else _stop(call.where))
        sums = 4 * rows * columns if terms.with_weights else 0
        own = native_workspace(call, of_pairs=terms.bias is not None)
        # the output does not exist yet while the bias is made
        return max(most - call.q.element_size() * rows * call.v.shape[3], own + held + sums)


class _Terms(NamedTuple):
    """What the scheme adds.

    Args:
        table: bias by offset.
        bias: bias of each pair.
        with_weights: whether the weights are needed.
        values: vectors that are added to the values.
    """

    table: OffsetTable | None
    bias: Bias | None
    with_weights: bool
    values: ClippedVectors | None


def _terms(call: AttentionCall) -> _Terms:
    """Return what the scheme adds, by its vectors if it has any."""
    vectors, table = _vectors(call), call.at.offset_table
    if vectors is None:
        return _Terms(table, _scheme_bias(call), "value_bias" in call.at.scheme.hooks, None)
    table = vectors.bias if table is None else table if vectors.bias is None else table + vectors.bias
    values = None
    if vectors.value_vectors is not None:
        values = _needed(vectors.value_vectors, vectors.reach, call.where)
    return _Terms(table, _vector_bias(call, vectors), values is not None, values)


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


def _vector_bias(call: AttentionCall, vectors: RelativeVectors) -> Bias | None:
    """Return products of queries and keys with the vectors of their offsets."""
    where, parts = call.where, []
    queries, keys = where.shape
    if vectors.query_vectors is not None:
        asked = _needed(vectors.query_vectors, vectors.reach, where)
        parts.append(pair_products(call.q.float(), asked, keys, queries - 1))
    if vectors.key_vectors is not None:
        own = repeat_keys(call.k, call.q.shape[1]).float()
        # from a key's side, offsets run the other way
        held = _needed(vectors.key_vectors, vectors.reach, where).flip()
        parts.append(pair_products(own, held, queries, _stop(where) - queries).mT)
    return sum(parts[1:], parts[0]) if parts else None


def _stop(where: Geometry) -> int:
    """Return the end of the entries needed of a table of offsets; queries - 1 is that of the first query and key.

    With a causal mask, where the last query sees all keys, offsets of the future are left out, but for one: with it
    the rows of a skewed view do not overlap.
    """
    queries, keys = where.shape
    cut = where.is_causal and where.start + queries == keys
    return min(keys + 1, queries + keys - 1) if cut else queries + keys - 1


def _needed(vectors: VectorPerOffset, reach: float, where: Geometry) -> ClippedVectors:
    """Return the vectors of the offsets needed, those beyond the reach only once."""
    if vectors.shape[1] == 1:
        return ClippedVectors(vectors.float())
    stop, own = _stop(where), where.start + where.shape[0] - 1
    size = math.ceil(min(reach, stop + own))
    first = min(max(own - size, 0), stop - 1)
    last = max(min(own + size + 1, stop), first + 1)
    return ClippedVectors(vectors[:, first:last].float(), first, stop - last)


def _scheme_bias(call: AttentionCall) -> Bias | None:
    """Return what the scheme's hooks add to the scores, but for a bias that is a table by offset."""
    scheme, at, where = call.at.scheme, call.at, call.where
    own = content = None
    if {"score", "content_bias"} & set(scheme.hooks):
        q, k = call.q.float(), repeat_keys(call.k, call.q.shape[1]).float()
        own, content = scheme.score(q, k, where), scheme.content_bias(q, k, where)
    parts = None if own is None else own * call.scale, at.bias if at.offset_table is None else None, content
    made = [part.float() for part in parts if part is not None]
    if not made:
        return None
    whole = sum(made[1:], made[0])
    # the kernel reads the biases of a row side by side
    return contiguous_channels(whole)
