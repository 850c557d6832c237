"""Mixers that know nothing of pairs: they read a sequence, and a row of the batch must hold one text."""

from abc import abstractmethod
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ordinate.checks import need
from ordinate.geometry import PADDING, Geometry
from ordinate.mixer import Memory, Mixer, State
from ordinate.scheme import Placed
from ordinate.shapes import Tokens
from ordinate.tensors import need_size, need_tokens, need_vectors


@dataclass(frozen=True, eq=False)
class Rows:
    """Documents laid out as rows of their own, padding before their tokens.

    Args:
        token: which token of the flattened batch stands at each place of each row; any at padding.
        real: whether one does.
        place: where in the flattened rows each token of the batch went.
        newest: the row of each example's newest document.
    """

    token: Int[Tensor, "rows length"]
    real: Bool[Tensor, "rows length"]
    place: Int[Tensor, "b n"]
    newest: Int[Tensor, "b"]

    @classmethod
    def of(cls, document: Int[Tensor, "b n"]) -> "Rows":
        """Lay out tokens that belong to these documents; -1 is padding, which goes with the newest document."""
        batch, tokens = document.shape
        real = document != PADDING
        index = torch.arange(tokens, device=document.device)
        last = (real * (index + 1)).argmax(1, keepdim=True)
        owner = torch.where(real, document, document.gather(1, last))
        example = torch.arange(batch, device=document.device)[:, None].expand_as(owner)
        _, row = torch.stack([example, owner], -1).flatten(0, 1).unique(dim=0, return_inverse=True)
        counts = row.bincount()
        # the padding of a row, then its tokens in their order
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

    def spread(self, x: Shaped[Tensor, "b n *rest"]) -> Shaped[Tensor, "rows length *rest"]:
        """Something of each token, laid out; 0 at padding, whatever stood there."""
        laid = x.flatten(0, 1)[self.token]
        return laid.masked_fill(~self.real.view(*self.real.shape, *(1,) * (x.ndim - 2)), 0)

    def gather(self, y: Float[Tensor, "rows length width"]) -> Tokens:
        """What was laid out, back where it came from; 0 at padding."""
        back = y.flatten(0, 1)[self.place]
        real = self.real.flatten()[self.place]
        return torch.where(real[..., None], back, back.new_zeros(()))


class SequenceMixer(Mixer[Memory]):
    """A mixer that reads the tokens of a text one after another or all at once, without asking who sees whom.

    It is given whole texts, one a row. What a geometry says beyond that is seen to here: packed documents become rows
    of their own, and padding is moved before a row's tokens.

    Must: what a mixer must, with `mix` in place of `forward`.
    """

    @abstractmethod
    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Memory | None
    ) -> tuple[Tokens, Memory | None]:
        """Mix texts, one a row.

        Args:
            x: the tokens; 0 at padding.
            at: the scheme where they stand; `at.where.hides_future` says whether later tokens are hidden.
            real: False at padding, which comes before a row's tokens and must leave no trace in any of them, nor in
                the state; None: there is none.
            state: what is remembered of the tokens before; rows with padding have read nothing yet.
        """

    def forward(self, x: Tokens, at: Placed, state: Memory | None = None) -> tuple[Tokens, Memory | None]:
        """Mix the tokens of `x`, which are the newest keys of the geometry; `state` remembers the others."""
        need_vectors("x", x, "batch, tokens, width")
        need_size("x", self, "width", x.shape[2])
        need_tokens("x", x, x.shape[1], at.where.q_pos)
        self.check_where(at.where)
        self._check_row(at.where, state)
        _check_batch(state, x.shape[0])
        start = at.where.start
        own = at.once("new", lambda: at.block(slice(None), slice(start, None))) if start else at
        documents = own.where.q_document
        if documents is None:
            return self.mix(x, own, None, state)
        if not x.shape[0] * x.shape[1]:
            return self.mix(x, own, torch.zeros_like(x[..., 0], dtype=torch.bool), state)
        documents = documents.expand(x.shape[0], -1)
        rows, laid = own.once(("rows", len(documents)), lambda: _laid_out(own, documents))
        if state is not None:
            _check_goes_on(at.where, rows)
        y, state = self.mix(rows.spread(x), laid, rows.real, state)
        return rows.gather(y), None if state is None else state.take(rows.newest)

    def _check_row(self, where: Geometry, state: Memory | None) -> None:
        name = type(self).__name__
        need(
            where.window is None,
            f"{name} has no window",
            f"got a geometry with window={where.window}",
            "leave it out, or choose a mixer by pairs (softmax, window)",
        )
        queries, keys = where.shape
        need(
            where.start + queries == keys,
            f"{name} mixes the tokens of one sequence",
            lambda: f"got a geometry of {queries} queries, {keys} keys, the first at {where.start}",
            "build it by Geometry.causal, full, packed, padded or given",
        )
        need(
            (state is None) == (where.start == 0),
            "tokens before these stand in the geometry and in the state, or in neither",
            lambda: f"got {where.start} in the geometry and {'no' if state is None else 'a'} state",
            "hand in the state that the tokens before returned",
        )


def _laid_out(own: Placed, documents: Int[Tensor, "b n"]) -> tuple[Rows, Placed]:
    """The documents of new tokens as rows, and the scheme where their tokens stand."""
    rows = Rows.of(documents)
    pos, document = rows.spread(own.where.q_pos.expand(len(documents), -1, -1)), rows.real.long() - 1
    where = Geometry(pos, pos, own.where.hides_future, q_document=document, k_document=document)
    return rows, Placed(own.scheme, where)


def _check_batch(state: State | None, batch: int) -> None:
    """Raise unless the state remembers as many rows as there are new ones."""
    for remembered in () if state is None else (getattr(state, field.name).shape[0] for field in fields(state)):
        if remembered != batch:
            raise ValueError(
                f"what is remembered and what is new need one batch; got {remembered} and {batch} rows; "
                "use the state with the batch that filled it"
            )


def _check_goes_on(where: Geometry, rows: Rows) -> None:
    """Raise unless new tokens belong to the newest document remembered, without padding after it."""
    past = where.block(slice(None), slice(0, where.start)).k_document
    if past is None or where.q_document is None:
        return
    past = past.expand(len(rows.newest), -1)
    index = torch.arange(1, past.shape[1] + 1, device=past.device)
    newest = past.gather(1, ((past != PADDING) * index).argmax(1, keepdim=True))
    goes_on = (where.q_document == newest).all(1) | (newest == PADDING)[:, 0]
    need(
        len(rows.token) == len(rows.newest) and bool(goes_on.all()),
        "new tokens go on in the document that was read last, all of them real",
        "got padding or another document after it in some row",
        "read each document with a state of its own",
    )
