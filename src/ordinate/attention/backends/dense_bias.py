"""Attention in C++ with a bias of each pair of a query and a key, in blocks of query rows for long texts; on CPUs."""

import math
from collections.abc import Callable

import torch

from ordinate.attention._backend import QUADRATIC_HOOKS, AttentionCall, Backend
from ordinate.attention._dense_blocks import attend_by_blocks, attend_whole, blocks_of
from ordinate.attention._dense_terms import Terms, TermSource, VectorTerms, term_source
from ordinate.attention._double_backward import undeclared_reason
from ordinate.attention._few_pairs import few_forward_pairs, few_head_pairs
from ordinate.attention._native import native_workspace, unfit, unsupported
from ordinate.attention._workspace import peak_and_rest
from ordinate.core.records import changed
from ordinate.core.shapes import Outputs
from ordinate.ops.blocks import QueryBlock, largest_blocks, offset_geometry
from ordinate.ops.native import build
from ordinate.schemes._fast_forms import vectors_of
from ordinate.schemes._held import apart

# with fewer query-key pairs, over batch and heads, compiling the kernel is not worth the wait; with more, the memory
# of all their biases counts
MIN_PAIRS, MAX_PAIRS = 2**16, 2**24
# with fewer in a head PyTorch's attention with the bias as a tensor is faster, unless that has relative vectors
MIN_HEAD_PAIRS, MIN_CONTENT_PAIRS = 2**12, 2**10
# as many times more for a bias in a forward pass alone on a processor of Intel's (measured on Granite Rapids), there
# without a mask, and for a bias that depends on the content without vectors
MORE_FORWARD, MORE_FULL, MORE_CONTENT = 2, 512, 8
# with more keys blocks of queries are faster, whose biases stay in the cache, but not if a head has fewer pairs; with
# twice as many where no mask leaves keys out of a block
MAX_KEYS, MIN_BLOCK_PAIRS = 512, 2**16


class DenseBias(Backend):
    """The C++ kernel with a dense bias in float32, for any scheme, on CPUs.

    The scheme computes what it adds to the scores of all pairs; relative position vectors (Shaw, Transformer-XL,
    DeBERTa) are multiplied with queries and keys and read as a skewed view. The kernel adds it to the scores and
    returns its gradient, and the attention weights where vectors are added to the values (Shaw). With more than 2^24
    pairs over batch and heads, 512 keys, or 1024 without a mask, this is done for a block of queries at a time, and
    again in the backward pass.
    """

    priority = 350
    supported_options = frozenset({"sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, float64, no bias, dropout, few pairs, and machines without a compiler."""
        reason = unsupported(call)
        if reason is not None:
            return reason
        if not QUADRATIC_HOOKS & set(call.at.scheme.hooks):
            return "the scheme adds nothing to the scores"
        if call.num_pairs < MIN_PAIRS:
            return f"there are fewer than {MIN_PAIRS} query-key pairs"
        reason = build.unavailable_reason("attention") or unfit(call)
        if reason is not None or not _in_blocks(call):
            return reason
        return None if isinstance(term_source(call), VectorTerms) else undeclared_reason(call)

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave short texts and few queries to PyTorch, and relative vectors in long texts to their own backend."""
        # not asked while torch.compile traces, which would compile for each such limit
        scheme, long = call.at.scheme, not torch.compiler.is_compiling() and call.k.shape[2] > MAX_KEYS
        few = few_head_pairs(call, MIN_BLOCK_PAIRS if long else MIN_CONTENT_PAIRS)
        if scheme.hooks == ("bias",):
            full = call.where.is_unmasked and call.num_pairs <= MAX_PAIRS
            least = MIN_HEAD_PAIRS * (MORE_FULL if full else MORE_FORWARD)
            return few or few_head_pairs(call, MIN_HEAD_PAIRS) or few_forward_pairs(call, least)
        short = few_forward_pairs(call, MORE_CONTENT * MIN_CONTENT_PAIRS)
        if not (few or long or short):
            return None
        if vectors_of(scheme, offset_geometry(call.where, 0, 1)) is None:
            return few or short
        elsewhere = long and call.score_options.sinks is None
        return (
            f"relative vectors are faster one head after the other with more than {MAX_KEYS} keys"
            if elsewhere
            else None
        )

    def run(self, call: AttentionCall) -> Outputs:
        """Compute the bias of all pairs, or of the pairs of a block after the other, and attention with it."""
        scored = changed(call, scale=0.0) if "score" in call.at.scheme.hooks else call
        return attend_by_blocks(scored, term_source(call)) if _in_blocks(call) else attend_whole(scored, _terms(call))

    def workspace_bytes(self, call: AttentionCall) -> int:
        """What `native` holds, and the bias and weights of all pairs, or what the scheme needs to make them.

        The bias is made and what is held meanwhile is counted; with blocks, that of the largest, beside its output
        and the sums of the softmax of all queries.
        """
        if not _in_blocks(call):
            most, held = _bytes_of(changed(call, at=apart(call.at)), _terms)
            # the output does not exist yet while the bias is made
            return max(most - call.output_bytes, held)
        learns, cuts = torch.is_grad_enabled(), largest_blocks(blocks_of(call.where, call.q, call.k))
        sources: list[TermSource] = []
        # with what autograd keeps of making them
        most, kept = peak_and_rest(lambda: sources.append(term_source(call)) or sources, call.where.shape[0])
        with torch.no_grad():
            blocks = [max(_block_bytes(call, cut, sources[0])) for cut in cuts]
        lost = call.output_bytes // 2 if learns and call.q.dtype == torch.bfloat16 else 0
        return max(most - call.output_bytes, kept + 8 * math.prod(call.q.shape[:3]) + lost + max(blocks))


def _in_blocks(call: AttentionCall) -> bool:
    return call.num_pairs > MAX_PAIRS or call.k.shape[2] > (2 * MAX_KEYS if call.where.is_unmasked else MAX_KEYS)


def _terms(call: AttentionCall) -> Terms:
    """Return what is added to all pairs."""
    queries, keys = call.where.shape
    source = term_source(call)
    return source.of(call, QueryBlock(slice(0, queries), slice(0, keys), 0), source.learned)


def _block_bytes(call: AttentionCall, cut: QueryBlock, source: TermSource) -> tuple[int, int]:
    """Return what is held while the terms of a block are made, and while the kernel runs [bytes]."""
    q, k, v = call.q[:, :, cut.rows], call.k[:, :, cut.keys], call.v[:, :, cut.keys]
    part = changed(call, q=q, k=k, v=v, at=call.at.block(cut.rows, cut.keys))
    most, held = _bytes_of(part, lambda own: source.of(own, cut, source.learned))
    return most, held + q.element_size() * math.prod(q.shape[:3]) * v.shape[3]


def _bytes_of(part: AttentionCall, make: Callable[[AttentionCall], Terms]) -> tuple[int, int]:
    """Return what is held while terms are made, and beside the output while the kernel runs [bytes]."""
    found: list[Terms] = []
    most, rest = peak_and_rest(lambda: found.append(make(part)) or found, part.where.shape[0])
    (terms,), pairs = found, (*part.q.shape[:3], part.k.shape[2])
    carry, weighing = terms.carry, 0
    if carry is not None:
        weighing, _ = peak_and_rest(lambda: carry(part.q.new_zeros(pairs, dtype=torch.float32)), pairs[2])
    return most, native_workspace(part, terms.bias) + rest + weighing
