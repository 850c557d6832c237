"""Attention with relative position vectors (Shaw, Transformer-XL, DeBERTa), in blocks of query rows; on CPUs."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.attention._few_pairs import few_head_pairs
from ordinate.attention._native import kernel_buffers, unfit
from ordinate.attention._workspace import peak_and_rest, run_workspace
from ordinate.core.devices import on_cpu
from ordinate.core.shapes import Keys, Outputs, Queries, Values
from ordinate.ops import relative, relative_vector_native
from ordinate.ops.blocks import offset_geometry
from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.largest import largest_entry
from ordinate.ops.native import attention, build
from ordinate.ops.offset_bias_attention import masked_table
from ordinate.ops.relative_vector_attention import IN_PYTORCH, VectorEngine, VectorInputs, VectorOptions, extent
from ordinate.ops.relative_vector_native import BY_KERNEL, split_of
from ordinate.schemes._fast_forms import depends_on_offsets, vectors_of

# with fewer query-key pairs in a head the Python overhead exceeds the gain
MIN_PAIRS = 2**17
# with fewer, no causal mask and vectors of keys PyTorch's attention is faster in training, at 512 tokens by a fifth
MIN_KEY_PAIRS = 2**19
# with fewer in a head the C++ kernel gains nothing: with a causal mask; without it, or with value vectors by offset;
# with key vectors by offset
MIN_NATIVE_PAIRS = 2**20, 2**21, 2**22
# largest vector, divided by the scale, beside queries and keys: see `_keeps_digits`
MAX_RATIO = 4.0
CONTENT_HOOKS = frozenset({"content_bias", "value_bias"})


class RelativeVectors(Backend):
    """Blocks of query rows, on CPUs, for `Scheme.relative_vectors`: a vector for each offset.

    Queries and keys are multiplied by the vectors of all offsets, and the product is read as a skewed view, which
    begins one column later in each row (the relative shift of Music Transformer and Transformer-XL): nothing is
    gathered pair by pair, and no queries x keys tensor is held; the same in the backward pass. In long texts the C++
    kernel computes the attention, pairs beyond the reach of the vectors without a bias; else plain PyTorch. Computed
    in float32 at least.
    """

    priority = 360

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, schemes or geometries without such vectors, dropout, small or non-finite inputs."""
        if not on_cpu(call.q):
            return "only CPUs are supported"
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace it"
        scheme, where = call.at.scheme, call.where
        if not CONTENT_HOOKS & set(scheme.hooks):
            return "the scheme does not depend on content"
        if "score" in scheme.hooks:
            return "the scheme replaces q.k by its own scores"
        if not (where.consecutive and depends_on_offsets(scheme)):
            return "the scheme depends on more than the offset in memory order"
        if call.at.offset_table is not None and bool(call.at.offset_table.isneginf().any()):
            return "a bias of -inf may hide all keys from a query"
        if call.dropout:
            return "dropout is not supported"
        if math.prod(where.shape) < MIN_PAIRS:
            return f"there are fewer than {MIN_PAIRS} query-key pairs in a head"
        if vectors_of(scheme, offset_geometry(where, 0, 1)) is None:
            return "the scheme has no vector for each offset"
        return call.overflow_reason

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave short texts without a causal mask to PyTorch if keys are multiplied with vectors, too (DeBERTa)."""
        few = None if call.where.is_causal else few_head_pairs(call, MIN_KEY_PAIRS)
        if few is None:
            return None
        made = vectors_of(call.at.scheme, offset_geometry(call.where, 0, 2))
        by_offset = made is not None and made.key_vectors is not None and made.key_vectors.shape[1] > 1
        return few if by_offset else None

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the autograd function, with the C++ kernel or in plain PyTorch."""
        inputs, setting = _prepared(call)
        engine = IN_PYTORCH if _not_native(call, inputs, setting) else BY_KERNEL
        return _Vectors.apply((engine, setting), *inputs)

    def way(self, call: AttentionCall) -> str:
        """The C++ kernel, with pairs beyond the reach apart or not; or plain PyTorch, and why."""
        inputs, setting = _prepared(call)
        reason = _not_native(call, inputs, setting)
        if reason is not None:
            return f"in plain PyTorch: {reason}"
        return f"the C++ kernel, {'pairs beyond the reach apart' if split_of(setting).far else 'all pairs in blocks'}"

    def workspace_bytes(self, call: AttentionCall) -> int:
        """What is held while tables are made, or while some heads are computed, with the tables of all heads."""
        found: list[tuple[VectorInputs, VectorOptions]] = []
        most, kept = peak_and_rest(lambda: found.append(_prepared(call)) or found, call.where.shape[0])
        with torch.no_grad():
            # the output does not exist yet while tables are made
            return max(most - call.output_bytes, kept + _heads_bytes(call, *found[0]))


def _heads_bytes(call: AttentionCall, inputs: VectorInputs, setting: VectorOptions) -> int:
    """Return what is held at most beside tables and output while heads are computed [bytes].

    The C++ kernel, whose buffers PyTorch does not see, is replaced by a function that holds as much.
    """
    native = _not_native(call, inputs, setting) is None
    # of one sequence: two heads of one key head, or of two; of the kernel one for each thread
    least = min(torch.get_num_threads(), call.q.shape[1]) if native else 2
    asked = call.groups * -(-least // call.groups) if call.k.shape[1] > 1 else call.groups
    tensors = (x[:1, :size] for x, size in zip(inputs[:3], (asked, *2 * (asked // call.groups,)), strict=True))
    part = VectorInputs(*tensors, *(None if x is None else x[:asked] for x in inputs[3:]))
    rows, wide = math.prod(call.q.shape[:3]), call.v.shape[3]
    others = rows - math.prod(part.q.shape[:3])

    def some_heads() -> Outputs:
        # the rest of the output, which is there from the first head on, of the kernel in float32
        rest = call.q.new_empty(others * wide, dtype=torch.float32 if native else None)
        out, _ = relative_vector_native.forward(part, setting, _hold) if native else IN_PYTORCH.forward(part, setting)
        del rest
        return out

    held = run_workspace(some_heads, call.where.shape[0]) - others * wide * call.q.element_size()
    if not native:
        return held
    # in the end the output is there in float32 and in the dtype of the inputs
    copied = 0 if call.q.dtype == torch.float32 else 4 * rows * wide
    return max(held + 8 * others, copied + 8 * rows)


def _hold(q: Queries, k: Keys, v: Values, *_: Any) -> tuple[Outputs, attention.Softmax, None]:
    """Hold what the C++ kernel holds, and return zeros of the shapes of its results."""
    made = q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(2, *q.shape[:3]), None
    sizes = (q.shape[2], k.shape[2]), (k.shape[3], v.shape[3])
    # freed at once: it is counted
    q.new_empty(kernel_buffers(math.prod(q.shape[:2]), *sizes, torch.float32), dtype=torch.uint8)
    return made


def _not_native(call: AttentionCall, inputs: VectorInputs, setting: VectorOptions) -> str | None:
    """Return why the C++ kernel does not compute a call; None if it does."""
    if call.q.dtype == torch.float64:
        return "float64 is not supported by the C++ kernel"
    held, carried = (x is not None and x.shape[1] > 1 for x in (inputs.key_vectors, inputs.value_vectors))
    least = MIN_NATIVE_PAIRS[2 if held else 1 if carried or not call.where.is_causal else 0]
    if math.prod(call.where.shape) < least:
        return f"the C++ kernel gains nothing with fewer than {least} query-key pairs in a head"
    # the backward pass of the kernel has one thread for each head
    if 2 * call.q.shape[1] <= torch.get_num_threads():
        return "the C++ kernel has work for no more than half of the threads"
    reason = build.unavailable_reason("attention")
    if reason is not None:
        return reason
    # for values the kernel would return the weights of all pairs, in the backward pass again; with vectors for keys
    # most of the time is that of the products, and the kernel gains nothing
    apart = bool(split_of(setting).far)
    if (held or carried) and not apart:
        return "most pairs have a vector of their own offset for the key or the value"
    if call.scale == 0.0:
        return "vectors are divided by the scale, which is 0"
    reason = unfit(call) or (None if _stays_in_range(call, inputs) else "scores may overflow float32")
    if reason is None and apart and not _keeps_digits(call, inputs):
        return "vectors are so large beside queries and keys that digits would be lost"
    return reason


def _keeps_digits(call: AttentionCall, inputs: VectorInputs) -> bool:
    """Whether (q + h / scale) . (k + a / scale) scale - h . a / scale is about as exact as the scores.

    With vectors a and h for both queries and keys the last term cancels one of the product, which is larger than the
    others where h / scale exceeds q and a / scale exceeds k; gradients of vectors lose digits where one of them does.
    """
    asked, held = inputs.query_vectors, inputs.key_vectors
    if asked is None or held is None:
        return True
    q, k, _ = call.largest
    most = MAX_RATIO * abs(call.scale)
    return largest_entry(held) <= most * q and largest_entry(asked) <= most * k


def _stays_in_range(call: AttentionCall, inputs: VectorInputs) -> bool:
    """Whether no score or value, with vectors added to queries, keys and values before, can overflow float32."""
    scale = abs(call.scale)
    asked, held, carried = (0.0 if x is None else largest_entry(x) for x in inputs[4:])
    q, k, v = call.largest
    product = call.q.shape[3] * (q + held / scale) * (k + asked / scale)
    bound = product * max(scale, 1.0) + inputs.table.detach().amax().item()
    # a NaN compares as false
    return bound < torch.finfo(torch.float32).max and v + carried < torch.finfo(torch.float32).max


def _prepared(
    call: AttentionCall,
) -> tuple[VectorInputs, VectorOptions]:
    """Tables of biases and vectors by offset, in float32 at least, and the other arguments."""
    where, heads, width = call.where, call.q.shape[1], call.q.shape[3]
    wide = torch.promote_types(call.q.dtype, torch.float32)
    low, high = extent(where)
    made = vectors_of(call.at.scheme, offset_geometry(where, low, high)) or relative.RelativeVectors()
    table = masked_table(call.at.offset_table, where, heads, wide)
    # the skewed view reads one entry past the last, whose value is not used
    hidden = torch.nn.functional.pad(table[0].isneginf(), (0, 1), value=True)[low:high]
    table = torch.nn.functional.pad(table, (0, 1))[:, low:high]
    table = table if made.bias is None else table + made.bias.to(wide)
    vectors = made.query_vectors, made.key_vectors, made.value_vectors
    for vector, columns in zip(vectors, (width, width, call.v.shape[3]), strict=True):
        if vector is not None:
            relative.check_table(vector, heads, columns)
    laid = (None if x is None else _seen(x.to(wide).contiguous(), hidden) for x in vectors)
    inputs = VectorInputs(call.q, call.k, call.v, table, *laid)
    return inputs, VectorOptions(where, call.scale, made.reach)


def _seen(vectors: relative.VectorPerOffset, hidden: Bool[Tensor, "offsets"]) -> relative.VectorPerOffset:
    """Return the vectors, with zeros for hidden offsets if any number is NaN or infinite: -inf + NaN would be NaN."""
    if vectors.shape[1] == 1 or math.isfinite(largest_entry(vectors)):
        return vectors
    return vectors.masked_fill(hidden[:, None], 0.0)


class _Vectors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: tuple[VectorEngine, VectorOptions], *inputs: Any) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.engine, ctx.setting = given
        out, kept = ctx.engine.forward(VectorInputs(*inputs), ctx.setting)
        ctx.save_for_backward(*inputs, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        size, saved = len(VectorInputs._fields), ctx.saved_tensors
        inputs, kept = VectorInputs(*saved[:size]), saved[size:]

        def fast(gradient: Tensor) -> list[Tensor | None]:
            # inputs: engine and setting, q, k, v, then the table
            return ctx.engine.backward(gradient, inputs, ctx.setting, ctx.needs_input_grad[4], kept)

        def plain(given: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
            where, scale = ctx.setting.where, ctx.setting.scale
            call = TableCall(where, scale, first=extent(where)[0])
            return table_formula(call)((*given[:4], None, *given[4:]), upstream)

        return None, *gradients(fast, plain, inputs, grad_outputs)
