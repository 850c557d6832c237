"""The Triton backend's way for schemes with a vector for each offset, such as Shaw, Transformer-XL and DeBERTa."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall
from ordinate.attention._double_backward import TableCall, table_formula
from ordinate.core.geometry import Geometry
from ordinate.ops.blocks import offset_geometry, visible_offsets
from ordinate.ops.double_backward import Tensors, gradients
from ordinate.ops.relative import RelativeVectors, check_table
from ordinate.ops.triton.tiles import most_channels
from ordinate.ops.triton.vector_tiles import MAX_VALUE_CHANNELS, VECTOR_TILES
from ordinate.schemes._fast_forms import depends_on_offsets, reach_of, vectors_of
from ordinate.schemes._scheme import Placed

Operator = Callable[..., tuple[Tensor, ...]]
"""As one of `ordinate.ops.triton.vector_operators`."""
CONTENT_HOOKS = frozenset({"content_bias", "value_bias"})


class Terms(NamedTuple):
    """The terms of a placed scheme as the kernels take them, float32, by memory offset from the first that is read.

    Args:
        table: biases (heads or 1, entries). Or None.
        asked: vectors multiplied with queries (heads or 1, entries, channels). Or None.
        held: vectors multiplied with keys; a single one is that of all offsets. Or None.
        carried: vectors added to values. Or None.
        first: memory offset of the first entry, from that of all offsets; those beyond the ends have the ends.
        far: whether there are pairs beyond the ends.
    """

    table: Tensor | None
    asked: Tensor | None
    held: Tensor | None
    carried: Tensor | None
    first: int
    far: bool

    @property
    def kind(self) -> tuple[str, ...]:
        """What a kernel distinguishes: see `Backend.proof_kind`."""
        given = {
            "a bias": self.table is not None,
            "vectors for queries": self.asked is not None,
            "vectors for keys": self.held is not None,
            "vectors for values": self.carried is not None,
            "pairs beyond the vectors": self.far,
        }
        return tuple(name for name, holds in given.items() if holds)


class Setting(NamedTuple):
    """What the autograd function takes beside tensors.

    Args:
        structure: as the operators take it.
        numbers: likewise.
        where: the geometry.
        first: as in `Terms`.
        forward: the operator.
        backward: that of its gradients.
    """

    structure: tuple[int, ...]
    numbers: tuple[float, float]
    where: Geometry
    first: int
    forward: Operator
    backward: Operator


def depends_on_content(at: Placed) -> bool:
    """Whether a scheme adds what depends on queries, keys or weights, so that this way is the one to ask."""
    return bool(CONTENT_HOOKS & set(at.scheme.hooks))


def vectors_unsupported(call: AttentionCall) -> str | None:
    """Return why a content-dependent scheme cannot be computed from vectors by offset; None if it can."""
    scheme, where = call.at.scheme, call.where
    if "score" in scheme.hooks:
        return "the scheme replaces q.k by its own scores"
    if not (where.consecutive and depends_on_offsets(scheme)):
        return "the scheme depends on more than the offset in memory order"
    return None if terms_of(call.at) is not None else "the scheme has no vector for each offset"


def vectors_without_configuration(call: AttentionCall, kind: str) -> str | None:
    """Return why a call's heads are too wide for the kernels on a class of GPU; None if they are not."""
    channels = max(call.q.shape[3], call.v.shape[3])
    most = most_channels(VECTOR_TILES, kind, call.q.dtype)
    if channels > most:
        return f"vectors by offset are supported up to {most} channels in {str(call.q.dtype).removeprefix('torch.')}"
    terms = terms_of(call.at)
    if terms is not None and terms.carried is not None and channels > MAX_VALUE_CHANNELS:
        return f"vectors by offset for values are supported up to {MAX_VALUE_CHANNELS} channels"
    return None


def vectors_attention(call: AttentionCall, forward: Operator, backward: Operator) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp in units of log2 by an operator and that of its gradients.

    Raises:
        ValueError: vectors of another width or number of heads than queries, keys and values have.
    """
    terms, where, heads = terms_of(call.at), call.where, call.q.shape[1]
    if terms is None:
        raise AssertionError("the scheme has no vector for each offset")
    for x, width in zip(terms[1:4], (call.q.shape[3], call.q.shape[3], call.v.shape[3]), strict=True):
        if x is not None:
            check_table(x, heads, width)
    asked = terms.asked
    if asked is None and terms.carried is None and (terms.held is None or terms.held.shape[1] == 1):
        # the gradient of a table is computed beside that of vectors
        asked = call.q.new_zeros(1, 1 if terms.table is None else terms.table.shape[1], call.q.shape[3]).float()
    table = None if terms.table is None else terms.table.expand(heads, -1).contiguous()
    sinks = call.score_options.sinks
    origin = where.shape[0] - 1 - terms.first
    structure = int(where.is_causal), where.start, where.window or 0, origin, int(terms.far)
    numbers = call.scale, call.score_options.softcap or 0.0
    setting = Setting(structure, numbers, where, terms.first, forward, backward)
    given = table, None if sinks is None else sinks.float().contiguous(), asked, terms.held, terms.carried
    return _Vectors.apply(setting, call.q, call.k, call.v, *given, where.q_document, where.k_document)


def vectors_bytes(call: AttentionCall) -> int:
    """Return what the forward pass holds beyond inputs and output: vectors as made and rounded, numbers of tokens."""
    terms, (batch, heads, queries, _), keys = terms_of(call.at), call.q.shape, call.where.shape[1]
    held = 4 * batch * (heads * queries + call.k.shape[1] * keys)
    if call.where.q_document is not None:
        held += 24 * batch * sum(call.where.shape)
    if terms is None:
        return held
    table = 0 if terms.table is None else 4 * terms.table.numel() * (1 + heads // len(terms.table))
    return held + table + sum((4 + call.q.element_size()) * x.numel() for x in terms[1:4] if x is not None)


def terms_of(at: Placed) -> Terms | None:
    """Return the terms of a placed scheme, which its layers share; None: it has no vectors by offset."""
    return at.cached("vectors of triton", lambda: _madeterms_of(at))


def _madeterms_of(at: Placed) -> Terms | None:
    """Evaluate the vectors and the bias at the offsets that are visible and at which they change."""
    scheme, where = at.scheme, at.where
    asked_once = vectors_of(scheme, offset_geometry(where, 0, 1))
    if asked_once is None:
        return None
    biased, known = "bias" in scheme.hooks, reach_of(scheme)
    reach = max(asked_once.reach, known or 0) if not biased or known is not None else None
    first, stop, far = visible_offsets(where, reach)
    asked = offset_geometry(where, first, stop)
    made = vectors_of(scheme, asked) or RelativeVectors()
    tables = [made.bias] if made.bias is not None else []
    bias = scheme.bias(asked) if biased else None
    if bias is not None:
        tables.append(bias[0, :, 0])
    table = sum((x.float() for x in tables[1:]), tables[0].float()).expand(-1, stop - first) if tables else None
    asked_for, held, carried = (
        None if x is None else x.float() for x in (made.query_vectors, made.key_vectors, made.value_vectors)
    )
    return Terms(table, asked_for, held, carried, first, far)


class _Vectors(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, setting: Setting, q: Tensor, k: Tensor, v: Tensor, *others: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        out, lse, *more = setting.forward(q, k, v, others, setting.structure, setting.numbers)
        ctx.setting = setting
        ctx.save_for_backward(q, k, v, *others, out, lse, *more)
        ctx.mark_non_differentiable(lse)
        # zeros for the log-sum-exp would take a launch
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        if grad_outputs[0] is None:
            return (None,) * 11
        # read once, as checkpointing allows
        kept = ctx.saved_tensors
        tensors, results = kept[:10], kept[10:]
        inputs, setting, needed = tensors[:8], ctx.setting, ctx.needs_input_grad[1:9]

        def fast(gradient: Tensor) -> tuple[Tensor | None, ...]:
            saved, learned = [*inputs[:3], *results], [needed[3], *needed[5:]]
            made = setting.backward(gradient, saved, tensors[3:], setting.structure, setting.numbers, learned)
            return tuple(x if need else None for x, need in zip(made, needed, strict=True))

        if torch.compiler.is_compiling():
            return None, *fast(grad_outputs[0]), None, None
        return None, *gradients(fast, _formula(setting), inputs, grad_outputs[:1]), None, None


def _formula(setting: Setting) -> Any:
    """The plain formula of q, k, v, table, sinks and vectors, in blocks of queries, for second derivatives."""
    where, (scale, cap) = setting.where, setting.numbers
    plain = table_formula(TableCall(where, scale, cap or None, setting.first))

    def formula(given: Tensors, upstream: Tensors) -> Iterable[tuple[Tensors, Tensors]]:
        q, k, v, table, sinks, *vectors = given
        if table is None:
            entries = max(x.shape[1] for x in vectors if x is not None)
            table = q.new_zeros(q.shape[1], entries, dtype=torch.float32)
        return plain((q, k, v, table, sinks, *vectors), upstream)

    return formula
