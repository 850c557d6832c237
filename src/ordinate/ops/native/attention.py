"""Binding of the C++ attention kernel (attention.cpp)."""

import ctypes
from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Bias, Keys, OffsetTable, Outputs, Queries, Values, Weights
from ordinate.ops.decay_cutoff import KeyRanges
from ordinate.ops.native.job import BOOL, NUMBER, POINTER, WHOLE, View, call_kernel

# rows and columns of a tile, as in tiles.h
ROWS, COLUMNS = 128, 512
# a weight is exp(score - Softmax[0]) * Softmax[1]
Softmax = Float[Tensor, "2 b h i"]
RoundingErrors = Int[Tensor, "b h i e"]
# tensors saved for backward; the table is reversed, since rows are keys there
SavedTensors = tuple[Queries, Keys, Values, OffsetTable, Outputs, Softmax, RoundingErrors | None]
Sinks = Float[Tensor, " h"]


class Gradients(NamedTuple):
    """Gradients of the inputs; None: not asked for."""

    q: Queries
    k: Keys
    v: Values
    table: OffsetTable | None
    sinks: Sinks | None
    bias: Bias | None


class Scoring(NamedTuple):
    """Options of attention scores.

    Args:
        scale: multiplies q.k.
        softcap: soft cap, cap tanh(score / cap); None: no cap.
        sinks: attention sinks, float32: for each head the score of an additional visible key whose value is 0.
        bias: bias of each pair, float32, for every head of every sequence; not with a soft cap.
        weights: receives the weights of all pairs, which may have a gradient; with at most COLUMNS keys. None: they
            are not held.
    """

    scale: float
    softcap: float | None = None
    sinks: Sinks | None = None
    bias: Bias | None = None
    weights: Weights | None = None


class _Job(ctypes.Structure):
    # as in tiles.h
    _fields_ = [
        *((name, BOOL) for name in ("back", "bfloat16", "wide")),
        *((name, WHOLE) for name in ("batch", "heads", "key_heads", "queries", "keys", "width", "depth")),
        ("scale", NUMBER),
        ("cap", NUMBER),
        *((name, POINTER) for name in ("sinks", "table")),
        ("bias", View),
        *((name, POINTER) for name in ("first", "last", "q_document", "k_document")),
        *((name, View) for name in ("q", "k", "v", "out")),
        *((name, POINTER) for name in ("top", "share", "lost", "weights")),
        *((name, View) for name in ("gradient", "dq", "dk", "dv")),
        ("dtable", POINTER),
        ("dbias", View),
        ("dweights", POINTER),
        ("dsinks", POINTER),
    ]


def forward(
    q: Queries,
    k: Keys,
    v: Values,
    table: OffsetTable,
    where: Geometry,
    scoring: Scoring,
    span: KeyRanges,
    learned: bool,
) -> tuple[Outputs, Softmax, RoundingErrors | None]:
    """softmax([cap tanh(q k^T scale / cap) + table + bias, sinks]) [v, 0] over visible pairs; 0 for masked queries.

    Args:
        q: queries in float32 or bfloat16, as are keys and values; the stride of channels is 1.
        k: keys.
        v: values.
        table: bias by offset, float32; -inf where causal mask or window apply.
        where: the geometry.
        scoring: options of the scores.
        span: range of keys of each block of ROWS queries.
        learned: whether the table or the sinks need a gradient, which needs the rounding error of a bfloat16 output.

    Returns:
        The output, and the softmax statistics and rounding errors for the backward pass.
    """
    out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty(*q.shape[:3], v.shape[3])
    softmax = q.new_empty(2, *q.shape[:3], dtype=torch.float32)
    lost = q.new_empty(out.shape, dtype=torch.int8) if learned and q.dtype == torch.bfloat16 else None
    tensors = {"q": q, "k": k, "v": v, "out": out, "table": table, "top": softmax[0], "share": softmax[1]}
    _run(False, where, scoring, span, tensors | {"lost": lost})
    return out, softmax, lost


def backward(
    upstream: tuple[Outputs, Weights | None],
    saved: SavedTensors,
    where: Geometry,
    scoring: Scoring,
    span: KeyRanges,
    learned: tuple[bool, Bias | None],
) -> Gradients:
    """Return the gradients of q, k, v and the sinks, and of the two biases if they are learned; recomputes weights.

    Args:
        upstream: gradients of the output and of the weights, if these were asked for.
        saved: inputs and results of the forward pass.
        where: the geometry.
        scoring: options of the scores, as in the forward pass.
        span: range of keys of each block of ROWS queries.
        learned: whether the table needs a gradient; zeros that become that of the bias of each pair, or None.
    """
    q, k, v, table, out, softmax, lost = saved
    gradient, to_weights = upstream
    made = [torch.empty_like(x) for x in (q, k, v)]
    dtable = table.new_zeros(*q.shape[:2], table.shape[1]) if learned[0] else None
    dsinks = None if scoring.sinks is None else table.new_empty(q.shape[:2])
    tensors = {"q": q, "k": k, "v": v, "out": out, "table": table, "top": softmax[0], "share": softmax[1]}
    tensors |= {"lost": lost, "gradient": gradient, "dweights": to_weights, "dbias": learned[1], "dtable": dtable}
    tensors |= {"dq": made[0], "dk": made[1], "dv": made[2], "dsinks": dsinks}
    _run(True, where, scoring, span, tensors)
    to_table, to_sinks = (None if x is None else x.sum(0) for x in (dtable, dsinks))
    to_table = None if to_table is None else to_table.flip(1)
    return Gradients(made[0], made[1], made[2], to_table, to_sinks, learned[1])


def _run(
    back: bool, where: Geometry, scoring: Scoring, span: KeyRanges, tensors: Mapping[str, Tensor | None]
) -> None:
    q, k, v = (cast(Tensor, tensors[name]) for name in ("q", "k", "v"))
    own = {"sinks": scoring.sinks, "bias": scoring.bias, "weights": scoring.weights}
    asks, holds = documents_of(where, q.shape[0])
    own |= {"first": span[0], "last": span[1], "q_document": asks, "k_document": holds}
    sizes = *q.shape[:2], k.shape[1], *where.shape, q.shape[3], v.shape[3]
    job = _Job(
        back, q.dtype == torch.bfloat16, not multiplies(q.dtype), *sizes, scoring.scale, scoring.softcap or 0.0
    )
    call_kernel("attention", job, {**tensors, **own})


def multiplies(type: torch.dtype) -> bool:
    """Whether products have operands of this type: else they are converted to float32, a tile at a time."""
    return type == torch.float32 or torch.backends.cpu.get_cpu_capability() == "AVX512"


def documents_of(where: Geometry, batch: int) -> tuple[Int[Tensor, "b i"] | None, Int[Tensor, "b j"] | None]:
    """Return the documents of queries and keys of each sequence, as the kernel reads them; None: one document."""
    if where.q_document is None or where.k_document is None:
        return None, None
    # padding keys get an id that no query has, so that padding queries do not attend to them either
    holds = where.k_document.long().masked_fill(where.k_document == PADDING, torch.iinfo(torch.int64).min)
    asks = where.q_document.long()
    return asks.expand(batch, -1).contiguous(), holds.expand(batch, -1).contiguous()
