"""Where queries and keys stand, and which pairs may see each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int, Real
from torch import Tensor

from ordinate.checks import need, need_counts, need_each_count, need_window
from ordinate.shapes import Visible
from ordinate.tensors import need_documents, need_mask, need_positions

PADDING = -1


@dataclass(frozen=True, eq=False)
class Geometry:
    """Positions of queries and keys as data, and visibility as structure.

    Nothing of size queries x keys exists until `visible` or `offset` of it, or of a block, is asked for. A pair
    (query, key) is visible when all of these hold:

        future:     under `hides_future` (causality), the key does not come after the query in memory order; positions
                    have no say in it
        window:     the key is one of the `window` nearest in memory order, oneself included; in a geometry that is
                    not causal the window reaches that far to both sides
        documents:  both belong to the same document, and it is not padding (document -1)

    Build one by `causal`, `full`, `cross`, `packed`, `padded`, `grid` or `given`, once per forward pass.

    Args:
        q_pos: where each query stands, in tokens (or rows and columns), per example or for all.
        k_pos: where each key stands.
        hides_future: keys after a query are hidden from it (causal attention).
        start: place of the first query in the memory order of the keys (the number of cached tokens).
        window: how many keys a query sees at most (tokens), oneself included; None: all.
        q_document: the document of each query; -1 is padding. None: one document.
        k_document: the document of each key.
        ordered: for every visible pair, q_pos - k_pos equals their distance in memory order, so that a table of
            offsets serves. Known to the constructors; False is always safe.
        follows: the positions of the keys that it was made to follow, and its own: `following` tells `after`.
    """

    q_pos: Real[Tensor, "#b i axes"]
    k_pos: Real[Tensor, "#b j axes"]
    hides_future: bool = False
    start: int = 0
    window: int | None = None
    q_document: Int[Tensor, "#b i"] | None = None
    k_document: Int[Tensor, "#b j"] | None = None
    ordered: bool = False
    follows: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        need_positions(self.q_pos, self.k_pos)
        need_window(self.window)
        need_documents(self.q_pos, self.k_pos, self.q_document, self.k_document)

    @classmethod
    def causal(
        cls, tokens: int, *, cached: int = 0, window: int | None = None, device: torch.device | str | None = None
    ) -> "Geometry":
        """Text read from left to right: each token sees itself and what came before.

        Args:
            tokens: new tokens, which ask.
            cached: tokens before them, which are only looked at.
            window: how many tokens each one sees at most, itself included.
            device: where the positions live.
        """
        need_counts(tokens=tokens, cached=cached)
        pos = torch.arange(cached + tokens, device=device)[None, :, None]
        return cls(pos[:, cached:], pos, hides_future=True, start=cached, window=window, ordered=True)

    @classmethod
    def full(cls, tokens: int, *, window: int | None = None, device: torch.device | str | None = None) -> "Geometry":
        """Text read in both directions: each token sees all of them."""
        need_counts(tokens=tokens)
        pos = torch.arange(tokens, device=device)[None, :, None]
        return cls(pos, pos, window=window, ordered=True)

    @classmethod
    def cross(cls, queries: int, keys: int, *, real: Bool[Tensor, "b j"] | None = None) -> "Geometry":
        """Queries of one sequence looking at all keys of another; both count from 0.

        Args:
            queries: tokens that ask.
            keys: tokens that are looked at.
            real: False where a key is padding.
        """
        need_counts(queries=queries, keys=keys)
        if real is not None:
            need_mask("real", real, "batch, keys")
        q_pos, k_pos = (torch.arange(n, device=None if real is None else real.device) for n in (queries, keys))
        plain = cls(q_pos[None, :, None], k_pos[None, :, None], ordered=True)
        if real is None:
            return plain
        return replace(plain, q_document=q_pos.new_zeros(1, queries), k_document=real.long() - 1)

    @classmethod
    def packed(
        cls,
        lengths: Sequence[int],
        *,
        causal: bool = True,
        window: int | None = None,
        device: torch.device | str | None = None,
    ) -> "Geometry":
        """Several documents laid end to end in one row: each counts from 0 and sees itself only.

        Args:
            lengths: tokens of each document, in order.
        """
        need_each_count("document", lengths)
        filled = len(lengths) > 0 and min(lengths) > 0
        need(filled, "each packed document needs a token", f"got lengths {list(lengths)}", "leave empty ones out")
        pos = torch.cat([torch.arange(length, device=device) for length in lengths])[None, :, None]
        sizes = torch.tensor(lengths, device=device)
        document = torch.repeat_interleave(torch.arange(len(lengths), device=device), sizes)[None]
        return cls(pos, pos, causal, 0, window, document, document, ordered=True)

    @classmethod
    def padded(cls, real: Bool[Tensor, "b n"], *, causal: bool = True, window: int | None = None) -> "Geometry":
        """Sequences of different lengths filled up on the left or right: positions count the real tokens.

        Args:
            real: True where there is a token, False where there is padding; no gaps inside a row.
        """
        need_mask("real", real, "batch, tokens")
        begins = real.diff(dim=1, prepend=real.new_zeros(real.shape[0], 1)) & real
        whole = bool((begins.sum(1) <= 1).all())
        need(whole, "padding stands before or after a row's tokens", "got a gap between them", "close the gap")
        pos = (real.long().cumsum(1) - 1).clamp(min=0)[..., None]
        document = real.long() - 1
        return cls(pos, pos, causal, 0, window, document, document, ordered=True)

    @classmethod
    def grid(cls, *sizes: int, device: torch.device | str | None = None) -> "Geometry":
        """The patches of an image (rows, columns) or a film (frames first), an axis for each: all see all."""
        need(bool(sizes), "a grid has an axis or more", "got none", "give how many rows and columns")
        need_each_count("axis", sizes)
        axes = [torch.arange(size, device=device) for size in sizes]
        pos = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, len(sizes))
        return cls(pos, pos)

    @classmethod
    def given(cls, pos: Real[Tensor, "#b n axes"], *, causal: bool = True, window: int | None = None) -> "Geometry":
        """Positions of your own, for queries and keys alike: fractional, repeated or random ones too."""
        return cls(pos, pos, hides_future=causal, window=window)

    @property
    def shape(self) -> tuple[int, int]:
        """How many queries and keys."""
        return self.q_pos.shape[1], self.k_pos.shape[1]

    @property
    def rows(self) -> int:
        """How many rows of a batch it tells apart; 1 serves any batch."""
        tensors = (self.q_pos, self.k_pos, self.q_document, self.k_document)
        return max([1, *(x.shape[0] for x in tensors if x is not None)])

    @property
    def sees_all(self) -> bool:
        """Whether every query sees every key, told without looking at a tensor."""
        # no key comes after the first query: causality hides nothing
        newest = self.start >= self.shape[1] - 1
        return self.window is None and self.q_document is None and (not self.hides_future or newest)

    @property
    def plain_causal(self) -> bool:
        """Whether this is one text read from left to right with nothing cached, told without looking at a tensor."""
        queries, keys = self.shape
        whole = self.window is None and self.q_document is None
        return self.hides_future and whole and self.start == 0 and queries == keys

    @property
    def offset(self) -> Real[Tensor, "#b i j axes"]:
        """Query position minus key position: positive means the key lies in the past."""
        return self.q_pos[:, :, None] - self.k_pos[:, None]

    @property
    def visible(self) -> Visible:
        """Which query may see which key."""
        queries, keys, device = *self.shape, self.q_pos.device
        place = torch.arange(self.start, self.start + queries, device=device)
        behind = place[:, None] - torch.arange(keys, device=device)
        seen = behind >= 0 if self.hides_future else torch.ones_like(behind, dtype=torch.bool)
        if self.window is not None:
            seen = seen & (behind.abs() < self.window)
        if self.q_document is None or self.k_document is None:
            return seen[None]
        same = self.q_document[:, :, None] == self.k_document[:, None]
        return seen & same & (self.k_document != PADDING)[:, None]

    def block(self, queries: slice, keys: slice = slice(None)) -> "Geometry":
        """The same geometry for some of the queries and keys (contiguous slices)."""
        (first, stop, _), (key_first, key_stop, _) = queries.indices(self.shape[0]), keys.indices(self.shape[1])
        q, k = slice(first, stop), slice(key_first, key_stop)
        return replace(
            self,
            q_pos=self.q_pos[:, q],
            k_pos=self.k_pos[:, k],
            start=self.start + first - key_first,
            q_document=None if self.q_document is None else self.q_document[:, q],
            k_document=None if self.k_document is None else self.k_document[:, k],
        )

    def after(self, past: "Geometry") -> "Geometry":
        """These tokens with the keys of `past` before their own, as a decoder sees them that has cached it."""
        q_document, k_document = _documents(self)
        _, past_document = _documents(past)
        plain = self.q_document is None and past.k_document is None
        # these tokens stand where `past.following` put them, and the newest of the past is its last key
        before, own = self.follows or (None, None)
        newest = 0 < past.shape[0] == past.shape[1] - past.start
        on = newest and before is past.k_pos and own is self.q_pos is self.k_pos
        batch = max(self.k_pos.shape[0], past.k_pos.shape[0])
        return replace(
            self,
            k_pos=torch.cat([_rows(past.k_pos, batch), _rows(self.k_pos, batch)], 1),
            start=self.start + past.shape[1],
            q_document=None if plain else q_document,
            k_document=None if plain else torch.cat([_rows(past_document, batch), _rows(k_document, batch)], 1),
            ordered=plain and on and past.ordered and self.ordered,
        )

    def following(self, tokens: int) -> "Geometry":
        """The next `tokens` of each row after these: positions go on from the last real key of the row."""
        need(self.shape[1] > 0, "something must have been read before", "got no keys", "build a first geometry")
        last, document = self.k_pos[:, -1:], None
        if self.k_document is not None:
            batch = max(self.k_pos.shape[0], self.k_document.shape[0])
            place = torch.arange(self.shape[1], device=last.device)
            index = ((self.k_document != PADDING) * place).argmax(1)[:, None].expand(batch, 1)
            last = _rows(self.k_pos, batch).gather(1, index[..., None].expand(-1, -1, last.shape[-1]))
            document = _rows(self.k_document, batch).gather(1, index).expand(-1, tokens)
        pos = last + torch.arange(1, tokens + 1, device=last.device)[None, :, None]
        own = {"q_pos": pos, "k_pos": pos, "q_document": document, "k_document": document}
        return replace(self, **own, hides_future=True, start=0, follows=(self.k_pos, pos))


def _documents(where: Geometry) -> tuple[Int[Tensor, "#b i"], Int[Tensor, "#b j"]]:
    if where.q_document is not None and where.k_document is not None:
        return where.q_document, where.k_document
    return where.q_pos.new_zeros(where.q_pos.shape[:2]).long(), where.k_pos.new_zeros(where.k_pos.shape[:2]).long()


def _rows(tensor: Tensor, batch: int) -> Tensor:
    return tensor.expand(batch, *tensor.shape[1:])
