"""Call the C++ attention: tensors are handed over as pointers and strides."""

import ctypes
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.geometry import PADDING, Geometry
from ordinate.native.job import BOOL, NUMBER, POINTER, WHOLE, View, run
from ordinate.shapes import Keys, Outputs, Queries, Table, Values

# of a tile, as in tiles.h
ROWS, COLUMNS = 128, 512
# a weight is exp(score - Softmax[0]) * Softmax[1]
Softmax = Float[Tensor, "2 b h i"]
# for each block of ROWS queries the first key that weighs anything, and how far its keys go
Span = tuple[Int[Tensor, "b h blocks"], Int[Tensor, " blocks"]]
Lost = Int[Tensor, "b h i e"]
# what the way back needs; the table in reverse, for its rows are keys
Saved = tuple[Queries, Keys, Values, Table, Outputs, Softmax, Lost | None]
Sinks = Float[Tensor, " h"]


class Scoring(NamedTuple):
    """How products of queries and keys become scores.

    Args:
        scale: multiplies them.
        cap: bends them to stay below it; None: they grow as they like.
        sinks: float32; for each head the score of a place that every query sees and that gives nothing.
    """

    scale: float
    cap: float | None = None
    sinks: Sinks | None = None


class _Job(ctypes.Structure):
    # as in tiles.h
    _fields_ = [
        ("back", BOOL),
        ("bfloat16", BOOL),
        *((name, WHOLE) for name in ("batch", "heads", "key_heads", "queries", "keys", "width", "depth")),
        ("scale", NUMBER),
        ("cap", NUMBER),
        *((name, POINTER) for name in ("sinks", "table", "first", "last", "q_document", "k_document")),
        *((name, View) for name in ("q", "k", "v", "out")),
        *((name, POINTER) for name in ("top", "share", "lost")),
        *((name, View) for name in ("gradient", "dq", "dk", "dv")),
        ("dtable", POINTER),
        ("dsinks", POINTER),
    ]


def forward(
    q: Queries, k: Keys, v: Values, table: Table, where: Geometry, scoring: Scoring, span: Span, learned: bool
) -> tuple[Outputs, Softmax, Lost | None]:
    """softmax([cap tanh(q k^T scale / cap) + table, sinks]) [v, 0] over visible pairs, and what the way back needs.

    A row that sees nothing gets 0.

    Args:
        q: queries in float32 or bfloat16, as are keys and values; channels lie side by side.
        k: keys.
        v: values.
        table: float32; -inf where causality or the window hides.
        where: the geometry.
        scoring: how products become scores.
        span: the keys of each block of queries.
        learned: the table or the sinks want a gradient, which needs what rounding takes from a bfloat16 output.
    """
    out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty(*q.shape[:3], v.shape[3])
    softmax = q.new_empty(2, *q.shape[:3], dtype=torch.float32)
    lost = q.new_empty(out.shape, dtype=torch.int8) if learned and q.dtype == torch.bfloat16 else None
    flat = {"table": table, "top": softmax[0], "share": softmax[1], "lost": lost}
    _run(False, where, scoring, span, {"q": q, "k": k, "v": v, "out": out}, flat)
    return out, softmax, lost


def backward(
    gradient: Outputs, saved: Saved, where: Geometry, scoring: Scoring, span: Span, learned: bool
) -> tuple[Queries, Keys, Values, Table | None, Sinks | None]:
    """The gradients of q, k, v, of the table if it is learned, and of the sinks: the weights are computed again."""
    q, k, v, table, out, softmax, lost = saved
    made = [torch.empty_like(x) for x in (q, k, v)]
    views = {"q": q, "k": k, "v": v, "out": out, "gradient": gradient}
    views |= dict(zip(("dq", "dk", "dv"), made, strict=True))
    dtable = table.new_zeros(*q.shape[:2], table.shape[1]) if learned else None
    dsinks = None if scoring.sinks is None else table.new_empty(q.shape[:2])
    flat = {"table": table, "top": softmax[0], "share": softmax[1], "lost": lost, "dtable": dtable}
    _run(True, where, scoring, span, views, flat | {"dsinks": dsinks})
    to_table, to_sinks = (None if x is None else x.sum(0) for x in (dtable, dsinks))
    return made[0], made[1], made[2], None if to_table is None else to_table.flip(1), to_sinks


def _run(
    back: bool,
    where: Geometry,
    scoring: Scoring,
    span: Span,
    views: dict[str, Tensor],
    flat: dict[str, Tensor | None],
) -> None:
    q, k, v = views["q"], views["k"], views["v"]
    # every tensor is held by a name until the end: the job knows addresses only
    flat["first"], flat["last"] = span
    flat["sinks"] = scoring.sinks
    flat["q_document"], flat["k_document"] = _documents(where, q.shape[0])
    sizes = *q.shape[:2], k.shape[1], *where.shape, q.shape[3], v.shape[3]
    job = _Job(back, q.dtype == torch.bfloat16, *sizes, scoring.scale, scoring.cap or 0.0)
    for name, tensor in flat.items():
        if tensor is not None:
            setattr(job, name, tensor.data_ptr())
    for name, tensor in views.items():
        setattr(job, name, View.of(tensor))
    run("attention", job)


def _documents(where: Geometry, batch: int) -> tuple[Int[Tensor, "b i"] | None, Int[Tensor, "b j"] | None]:
    if where.q_document is None or where.k_document is None:
        return None, None
    # a key of padding belongs to nobody, not even to a query of padding
    holds = where.k_document.long().masked_fill(where.k_document == PADDING, torch.iinfo(torch.int64).min)
    asks = where.q_document.long()
    return asks.expand(batch, -1).contiguous(), holds.expand(batch, -1).contiguous()
