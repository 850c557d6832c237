"""Base class of mixers that process whole sequences instead of query-key pairs: RNNs, SSMs, linear attention, MLPs.

Such a mixer supports neither packing nor padding by itself. This module unpacks the documents of a batch into rows of
their own, left-padded, and packs the results again.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ordinate.core.checks import need
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import need_size, need_tokens, need_true, need_vectors
from ordinate.mixers._mixer import Mixer, MixerState, StateType
from ordinate.ops.double_backward import untraceable
from ordinate.schemes._scheme import Placed

# mixes tokens, one sequence per row
Mix = Callable[[Tokens], tuple[Tokens, StateType | None]]


@dataclass(frozen=True, eq=False)
class UnpackedDocuments:
    """Index maps between a packed batch and one left-padded row per document.

    Args:
        row_to_packed: index into the flattened batch of the token at each position of each row; arbitrary at padding.
        real: False at padding.
        packed_to_row: index into the flattened rows of each token of the batch.
        last_row: row of the last document of each example.
    """

    row_to_packed: Int[Tensor, "rows length"]
    real: Bool[Tensor, "rows length"]
    packed_to_row: Int[Tensor, "b n"]
    last_row: Int[Tensor, "b"]

    @classmethod
    def from_documents(cls, document: Int[Tensor, "b n"]) -> "UnpackedDocuments":
        """Build the maps from document ids; padding (-1) is put into the row of the last document."""
        batch, tokens = document.shape
        real = document != PADDING
        index = torch.arange(tokens, device=document.device)
        last = (real * (index + 1)).argmax(1, keepdim=True)
        owner = torch.where(real, document, document.gather(1, last))
        example = torch.arange(batch, device=document.device)[:, None].expand_as(owner)
        _, row = torch.stack([example, owner], -1).flatten(0, 1).unique(dim=0, return_inverse=True)
        counts = row.bincount()
        # sort key: row first, padding before tokens within a row; stable, so tokens keep their order
        order = (2 * row + real.flatten()).argsort(stable=True)
        begins = counts.cumsum(0) - counts
        column = torch.empty_like(row)
        column[order] = (
            torch.arange(row.numel(), device=row.device) - (begins - int(counts.max()) + counts)[row[order]]
        )
        token = row.new_zeros(len(counts), int(counts.max()))
        token[row, column] = torch.arange(row.numel(), device=row.device)
        there = torch.zeros_like(token, dtype=torch.bool)
        there[row, column] = real.flatten()
        place = (row * token.shape[1] + column).view(batch, tokens)
        return cls(token, there, place, row.view(batch, tokens).gather(1, last)[:, 0])

    @classmethod
    def from_padding(cls, real: Bool[Tensor, "b n"]) -> "UnpackedDocuments":
        """Build the maps of rows of one document each, which sizes alone determine: padding moves to the left."""
        batch, tokens = real.shape
        first = (torch.arange(batch, device=real.device) * tokens)[:, None]
        # stable, so tokens keep their order
        order = real.long().argsort(dim=1, stable=True)
        return cls(first + order, real.gather(1, order), first + order.argsort(1), first[:, 0] // tokens)

    @classmethod
    def from_sizes(cls, document: Int[Tensor, "b n"], count: int, longest: int) -> "UnpackedDocuments":
        """Build the maps of documents 0 to `count` - 1, one after another, of `longest` tokens at most."""
        batch, tokens = document.shape
        lengths = (
            torch.zeros_like(document[:, :1]).repeat(1, count).scatter_add(1, document, torch.ones_like(document))
        )
        # the column that a document's first token would have, were its row as long as the batch's
        shift = longest - lengths.cumsum(1)
        example = torch.arange(batch, device=document.device)[:, None]
        column = torch.arange(longest, device=document.device)
        token = (column - shift[..., None]).clamp(min=0) + (example * tokens)[..., None]
        there = column >= longest - lengths[..., None]
        place = torch.arange(tokens, device=document.device) + shift.gather(1, document)
        place = place + (example * count + document) * longest
        return cls(token.flatten(0, 1), there.flatten(0, 1), place, example[:, 0] * count + count - 1)

    def unpack(self, x: Shaped[Tensor, "b n *rest"]) -> Shaped[Tensor, "rows length *rest"]:
        """Unpack per-token values into rows; 0 at padding, even where the input has NaN there."""
        laid = x.flatten(0, 1)[self.row_to_packed]
        return laid.masked_fill(~self.real.view(*self.real.shape, *(1,) * (x.ndim - 2)), 0)

    def pack(self, y: Float[Tensor, "rows length width"]) -> Tokens:
        """Inverse of `unpack`: pack row values into the batch layout; 0 at padding."""
        back = y.flatten(0, 1)[self.packed_to_row]
        real = self.real.flatten()[self.packed_to_row]
        return torch.where(real[..., None], back, back.new_zeros(()))


class SequenceMixer(Mixer[StateType]):
    """Mixer over whole sequences, one sequence per row, without query-key visibility.

    `forward` handles packing and padding: each packed document gets a row of its own, and padding is moved to the
    left of its tokens.

    Must: as `Mixer`, but define `mix_sequences` instead of `forward`.
    May: set `confines_nonfinite`.
    """

    confines_nonfinite: ClassVar[bool] = False
    """Whether it keeps NaN and infinity from tokens that do not see them; otherwise `forward` does."""

    @abstractmethod
    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: StateType | None
    ) -> tuple[Tokens, StateType | None]:
        """Mix sequences, one per row.

        Args:
            x: token vectors; 0 at padding.
            at: the scheme at their positions; causal if `at.where.is_causal`.
            real: False at padding, which is on the left and must not affect any token or the state; None: no padding.
            state: state after the previous tokens; rows with padding have no previous tokens.
        """

    def forward(self, x: Tokens, at: Placed, state: StateType | None = None) -> tuple[Tokens, StateType | None]:
        """Unpack documents into rows, mix them, and pack the results; see `Mixer.forward`."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        need_tokens("x", x, x.shape[1], at.where.q_pos)
        self.check_geometry(at.where)
        self._check_row(at.where, state)
        _check_batch(state, x.shape[0])
        y, after = self.with_causal_gradients(lambda x: self._unpacked(x, at, state), x, at, state)
        # no tokens change no state; before the first token there is none
        return y, after if x.shape[1] else state

    def _unpacked(self, x: Tokens, at: Placed, state: StateType | None) -> tuple[Tokens, StateType | None]:
        start = at.where.start
        own = at.cached("new", lambda: at.block(slice(None), slice(start, None))) if start else at
        documents = own.where.q_document
        if documents is None:
            return self._mix_confined(x, own, None, state)
        if not x.shape[0] * x.shape[1]:
            return self.mix_sequences(x, own, torch.zeros_like(x[..., 0], dtype=torch.bool), state)
        documents = documents.expand(x.shape[0], -1)
        rows, laid = own.cached(("rows", len(documents)), lambda: _unpacked(own, documents))
        if state is not None:
            _check_continues(at.where, rows)
        y, state = self._mix_confined(rows.unpack(x), laid, rows.real, state)
        return rows.pack(y), None if state is None else state.select_rows(rows.last_row)

    def _mix_confined(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: StateType | None
    ) -> tuple[Tokens, StateType | None]:
        """Mix sequences so that NaN and infinity reach their own and later tokens, and no earlier ones.

        Products with a causal mask, convolutions and sums over chunks would carry them backwards: 0 * NaN is NaN. All
        outputs from the first such token of a row on are NaN, and so is the row's state. The same holds for a finite
        token from which NaN or infinity arises and reaches earlier outputs, where values can be read.
        """
        if self.confines_nonfinite or not at.where.is_causal:
            return self.mix_sequences(x, at, real, state)
        # reading a value costs nothing on a CPU; elsewhere it would synchronise the device
        readable = x.device.type == "cpu" and not torch.compiler.is_compiling() and untraceable(x) is None
        mix = partial(self.mix_sequences, at=at, real=real, state=state)
        if not readable or not _is_finite(x):
            return _without(mix, x, (~x.isfinite().all(-1)).cumsum(1) > 0)
        y, after = mix(x)
        bad = None if _is_finite(y) else _overflowing(mix, x, y.isfinite().all(-1))
        return (y, after) if bad is None else _without(mix, x, bad)

    def _check_row(self, where: Geometry, state: StateType | None) -> None:
        name = type(self).__name__
        need(
            where.window is None,
            f"{name} does not support a sliding window",
            f"got a geometry with window={where.window}",
            "leave it out, or choose an attention mixer (softmax, window)",
        )
        queries, keys = where.shape
        need(
            where.start + queries == keys,
            f"{name} needs queries that are the last keys of one sequence",
            lambda: f"got a geometry of {queries} queries, {keys} keys, the first query at {where.start}",
            "build it by Geometry.causal, full, packed, padded or given",
        )
        need(
            (state is None) == (where.start == 0),
            "a state is needed exactly if the geometry has past tokens",
            lambda: f"got {where.start} past tokens in the geometry and {'no' if state is None else 'a'} state",
            "pass the state that the call for the past tokens returned",
        )


def _is_finite(x: Tokens) -> bool:
    # one sum is cheap, in float16 it could overflow; where it does all the same, the numbers themselves tell
    total = x.detach().sum(dtype=torch.float32 if x.dtype == torch.float16 else None)
    return bool(total.isfinite() or x.isfinite().all())


def _without(mix: Mix[StateType], x: Tokens, bad: Bool[Tensor, "b n"]) -> tuple[Tokens, StateType | None]:
    """Mix sequences whose last tokens are bad: these count as 0, and their outputs are NaN."""
    y, after = mix(x.masked_fill(bad[..., None], 0.0))
    if after is not None and x.shape[1]:
        after = after.fill_rows(bad[:, -1], float("nan"))
    return y.masked_fill(bad[..., None], float("nan")), after


@torch.no_grad()
def _overflowing(mix: Mix[StateType], x: Tokens, finite: Bool[Tensor, "b n"]) -> Bool[Tensor, "b n"] | None:
    """The tokens from the first on that spoils outputs before its own, in each row; None: no token does.

    Args:
        mix: mixes sequences.
        x: the tokens.
        finite: whether each output is finite.
    """
    index, count = torch.arange(x.shape[1], device=x.device), torch.zeros(len(x), 1, dtype=torch.long)
    # bisection: the most first tokens of which the outputs are finite
    for more in reversed([2**power for power in range(x.shape[1].bit_length())]):
        y, _ = mix(x.masked_fill((index >= count + more)[..., None], 0.0))
        fits = y.isfinite().all(-1).all(-1, keepdim=True) & (count + more <= x.shape[1])
        count = torch.where(fits, count + more, count)
    late = index >= count
    spoiled = (~finite & ~late).any(1, keepdim=True)
    return late & spoiled if spoiled.any() else None


def _unpacked(own: Placed, documents: Int[Tensor, "b n"]) -> tuple[UnpackedDocuments, Placed]:
    """Index maps for the documents of the new tokens, and the scheme at the unpacked geometry."""
    if own.where.one_document:
        rows = UnpackedDocuments.from_padding(documents != PADDING)
    elif own.where.packed_sizes is not None:
        rows = UnpackedDocuments.from_sizes(documents, *own.where.packed_sizes)
    else:
        rows = UnpackedDocuments.from_documents(documents)
    pos, document = rows.unpack(own.where.q_pos.expand(len(documents), -1, -1)), rows.real.long() - 1
    where = Geometry(pos, pos, own.where.is_causal, q_document=document, k_document=document)
    return rows, Placed(own.scheme, where)


def _check_batch(state: MixerState | None, batch: int) -> None:
    """Raise unless the batch size of the state is that of the new tokens."""
    for rows in () if state is None else (getattr(state, field.name).shape[0] for field in fields(state)):
        if rows != batch:
            raise ValueError(
                f"state and new tokens need the same batch size; got {rows} and {batch} rows; "
                "use the state with the batch that it was computed for"
            )


def _check_continues(where: Geometry, rows: UnpackedDocuments) -> None:
    """Raise unless all new tokens continue the last document of the past, without padding in between."""
    past = where.block(slice(None), slice(0, where.start)).k_document
    if past is None or where.q_document is None:
        return
    past = past.expand(len(rows.last_row), -1)
    index = torch.arange(1, past.shape[1] + 1, device=past.device)
    newest = past.gather(1, ((past != PADDING) * index).argmax(1, keepdim=True))
    continues = (where.q_document == newest).all(1) | (newest == PADDING)[:, 0]
    must = "with a state, all new tokens must continue the last document of the past"
    came = "got padding or the start of another document in some row"
    remedy = "process each document with a state of its own"
    need(len(rows.row_to_packed) == len(rows.last_row), must, came, remedy)
    need_true(continues.all(), must, came, remedy)
