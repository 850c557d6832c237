"""Positions of queries and keys, and the attention mask as structure (causal, window, documents, padding)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int, Real
from torch import Tensor

from ordinate.core.checks import need, need_counts, need_each_count, need_whole, need_window
from ordinate.core.devices import send
from ordinate.core.html_display import beside, heatmap
from ordinate.core.records import changed
from ordinate.core.shapes import Visible
from ordinate.core.tensors import need_documents, need_mask, need_positions, need_true, need_untraced

PADDING = -1
# most queries and keys of the picture of a geometry
SHOWN_TOKENS = 40


@dataclass(frozen=True, eq=False)
class Geometry:
    """Position ids of queries and keys, and the attention mask in structured form.

    Tensors of size queries x keys are built only when `visible` or `offset` is read, of the whole or of a block. A
    query may attend to a key if all of these hold:

        causality:  under `is_causal`, the key does not come after the query in memory order (the order of the
                    tensors); positions do not matter
        window:     the key is at most `window` - 1 tokens before the query in memory order; without causality, the
                    window extends that far to both sides
        documents:  both have the same document id, and it is not padding (-1)

    Build one by `causal`, `full`, `cross`, `packed`, `padded`, `grid` or `from_positions`, once per forward pass.

    Args:
        q_pos: position of each query, in tokens (or rows and columns); a batch size of 1 serves any batch.
        k_pos: position of each key.
        is_causal: causal mask.
        start: index of the first query among the keys (the number of cached tokens).
        window: sliding window: number of keys that a query may attend to, itself included [tokens]; None: all.
        q_document: document id (segment id) of each query; -1 is padding. None: one document.
        k_document: document id of each key.
        consecutive: for every visible pair, q_pos - k_pos equals their offset in memory order, so that a bias can be
            read from a table by offset. Set by the constructors; False is always safe.
        one_document: each row has one document and padding, no more; False: not known. Set by the constructors.
        packed_sizes: number of documents, and tokens of the longest one, of queries that are all keys and in which
            document 0, 1, 2, ... follow each other without padding; None: not known. Set by `packed`.
        continues: set by `next_tokens`: the key positions that it continues, and its own, by which `with_past`
            recognises a direct continuation.
    """

    q_pos: Real[Tensor, "#b i axes"]
    k_pos: Real[Tensor, "#b j axes"]
    is_causal: bool = False
    start: int = 0
    window: int | None = None
    q_document: Int[Tensor, "#b i"] | None = None
    k_document: Int[Tensor, "#b j"] | None = None
    consecutive: bool = False
    one_document: bool = False
    packed_sizes: tuple[int, int] | None = None
    continues: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        need_positions(self.q_pos, self.k_pos)
        need_window(self.window)
        if isinstance(self.start, float | bool):
            need_whole("start", self.start)
        need_documents(self.q_pos, self.k_pos, self.q_document, self.k_document)

    @classmethod
    def causal(
        cls, tokens: int, *, cached: int = 0, window: int | None = None, device: torch.device | str | None = None
    ) -> "Geometry":
        """Causal mask: each token attends to itself and earlier tokens.

        Args:
            tokens: number of new tokens (queries).
            cached: number of tokens before them, in the KV cache.
            window: sliding window, the token itself included [tokens].
            device: device of the positions.
        """
        _need_sizes(tokens=tokens, cached=cached)
        pos = torch.arange(cached + tokens, device=device)[None, :, None]
        # without a cache queries and keys share one tensor, which is then checked once
        own = pos[:, cached:] if cached else pos
        return cls(own, pos, is_causal=True, start=cached, window=window, consecutive=True)

    @classmethod
    def full(cls, tokens: int, *, window: int | None = None, device: torch.device | str | None = None) -> "Geometry":
        """Bidirectional attention: each token attends to all tokens, or to those less than `window` away."""
        _need_sizes(tokens=tokens)
        pos = torch.arange(tokens, device=device)[None, :, None]
        return cls(pos, pos, window=window, consecutive=True)

    @classmethod
    def cross(cls, queries: int, keys: int, *, real: Bool[Tensor, "b j"] | None = None) -> "Geometry":
        """Cross-attention: queries of one sequence attend to all keys of another; both have positions from 0.

        Args:
            queries: number of queries.
            keys: number of keys.
            real: padding mask of the keys: True at tokens, False at padding.
        """
        _need_sizes(queries=queries, keys=keys)
        if real is not None:
            need_mask("real", real, "batch, keys")
        q_pos, k_pos = (torch.arange(n, device=None if real is None else real.device) for n in (queries, keys))
        plain = cls(q_pos[None, :, None], k_pos[None, :, None], consecutive=True)
        if real is None:
            return plain
        q_document = q_pos.new_zeros(1, queries)
        return changed(plain, q_document=q_document, k_document=real.long() - 1, one_document=True)

    @classmethod
    def packed(
        cls,
        lengths: Sequence[int],
        *,
        causal: bool = True,
        window: int | None = None,
        device: torch.device | str | None = None,
    ) -> "Geometry":
        """Packed sequences: documents concatenated in one row; each has positions from 0 and attends only to itself.

        Args:
            lengths: number of tokens of each document, in order.
            causal: apply a causal mask inside each document.
            window: sliding window [tokens].
            device: device of the positions.
        """
        need_each_count("document", lengths)
        filled = len(lengths) > 0 and min(lengths) > 0
        need(filled, "each packed document needs a token", f"got lengths {list(lengths)}", "omit empty documents")
        pos = torch.cat([torch.arange(length, device="cpu") for length in lengths])[None, :, None]
        sizes = torch.tensor(lengths, device="cpu")
        # without the size of the result, fake tensors could not tell its shape
        index, count = torch.arange(len(lengths), device="cpu"), sum(lengths)
        document = torch.repeat_interleave(index, sizes, output_size=count)[None]
        # made on the CPU, since repeat_interleave by a tensor of sizes would wait for a GPU
        pos, document = send(pos, device), send(document, device)
        found = {"consecutive": True, "packed_sizes": (len(lengths), max(lengths))}
        return cls(pos, pos, causal, 0, window, document, document, **found)

    @classmethod
    def padded(cls, real: Bool[Tensor, "b n"], *, causal: bool = True, window: int | None = None) -> "Geometry":
        """Sequences of different lengths padded on the left or right; positions count tokens without padding.

        Args:
            real: padding mask: True at tokens, False at padding; the tokens of a row are contiguous.
            causal: apply a causal mask.
            window: sliding window [tokens].
        """
        need_mask("real", real, "batch, tokens")
        begins = real.diff(dim=1, prepend=real.new_zeros(real.shape[0], 1)) & real
        must, came = "padding must be before or after a row's tokens", "got a gap between them"
        need_true((begins.sum(1) <= 1).all(), must, came, "close the gap")
        pos = (real.long().cumsum(1) - 1).clamp(min=0)[..., None]
        document = real.long() - 1
        return cls(pos, pos, causal, 0, window, document, document, consecutive=True, one_document=True)

    @classmethod
    def grid(cls, *sizes: int, device: torch.device | str | None = None) -> "Geometry":
        """Bidirectional attention over the patches of an image (rows, columns) or video (frames, rows, columns)."""
        need(bool(sizes), "a grid needs at least one axis", "got none", "give the numbers of rows and columns")
        _need_sizes(**{f"axis {axis}": size for axis, size in enumerate(sizes)})
        axes = [torch.arange(size, device=device) for size in sizes]
        pos = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, len(sizes))
        return cls(pos, pos)

    @classmethod
    def from_positions(
        cls, pos: Real[Tensor, "#b n axes"], *, causal: bool = True, window: int | None = None
    ) -> "Geometry":
        """Self-attention with explicit positions, which may be fractional, repeated or random."""
        return cls(pos, pos, is_causal=causal, window=window)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of queries and keys."""
        return self.q_pos.shape[1], self.k_pos.shape[1]

    @property
    def batch_size(self) -> int:
        """Batch size of its tensors; 1 serves any batch."""
        tensors = (self.q_pos, self.k_pos, self.q_document, self.k_document)
        return max([1, *(x.shape[0] for x in tensors if x is not None)])

    @property
    def is_unmasked(self) -> bool:
        """True if no mask is needed. Uses metadata only; never synchronises the device."""
        # no key comes after the first query: the causal mask hides nothing
        newest = self.start >= self.shape[1] - 1
        return self.window is None and self.q_document is None and (not self.is_causal or newest)

    @property
    def is_plain_causal(self) -> bool:
        """True if the mask is the plain square causal one (`is_causal` of PyTorch). Uses metadata only."""
        queries, keys = self.shape
        plain = self.window is None and self.q_document is None
        return self.is_causal and plain and self.start == 0 and queries == keys

    @property
    def offset(self) -> Real[Tensor, "#b i j axes"]:
        """Relative positions: query position minus key position, positive for keys in the past."""
        q, k = self.q_pos, self.k_pos
        # the difference of two int32 may exceed int32
        return (q if q.is_floating_point() else q.long())[:, :, None] - (k if k.is_floating_point() else k.long())[
            :, None
        ]

    @property
    def visible(self) -> Visible:
        """Boolean attention mask: True where a query may attend to a key."""
        queries, keys = (torch.arange(tokens, device=self.q_pos.device) for tokens in self.shape)
        return self._visible(queries, keys)

    def _visible(self, queries: Tensor, keys: Tensor) -> Visible:
        """The attention mask of these queries and keys, by index."""
        behind = self.start + queries[:, None] - keys
        seen = behind >= 0 if self.is_causal else torch.ones_like(behind, dtype=torch.bool)
        if self.window is not None:
            seen = seen & (behind.abs() < self.window)
        if self.q_document is None or self.k_document is None:
            return seen[None]
        q_document, k_document = self.q_document[:, queries], self.k_document[:, keys]
        return seen & (q_document[:, :, None] == k_document[:, None]) & (k_document != PADDING)[:, None]

    def __repr__(self) -> str:
        """Name the sizes and the structure of the mask, not every position."""
        queries, keys = self.shape
        parts = [f"queries={queries}", f"keys={keys}"]
        parts += [f"{name}={x}" for name, x in (("axes", self.q_pos.shape[-1]), ("batch", self.batch_size)) if x > 1]
        parts += [f"{name}={x}" for name, x in (("start", self.start), ("window", self.window)) if x]
        packed = ["documents"] if self.q_document is not None else []
        return f"Geometry({', '.join([*parts, *(['causal'] if self.is_causal else []), *packed])})"

    def _repr_html_(self) -> str:
        """Show who sees whom, in a notebook: of large geometries some queries and keys, of a batch its first row."""
        rows, columns = (_evenly(tokens).to(self.q_pos.device) for tokens in self.shape)
        numbers = torch.where(self._visible(rows, columns)[0], 1.0, float("nan")).tolist()
        parts = [] if max(self.shape) <= SHOWN_TOKENS else [f"{SHOWN_TOKENS} of the tokens"]
        parts += ["the first of the batch"] if self.batch_size > 1 else []
        axis = f"keys 0 to {self.shape[1] - 1}"
        plots = [heatmap(numbers, title="visible keys of each query", rows="query", columns=axis)]
        return beside(repr(self), plots if all(self.shape) else [], f"Shown: {', '.join(parts)}." if parts else "")

    def block(self, queries: slice, keys: slice | None = None) -> "Geometry":
        """Restrict the geometry to contiguous slices of the queries and keys; all keys by default."""
        # a slice as the default value could not be traced by PyTorch 2.11
        keys = slice(None) if keys is None else keys
        for name, part in (("queries", queries), ("keys", keys)):
            need(part.step in (None, 1), f"a block has consecutive {name}", f"got step {part.step}", "leave it out")
        (first, stop), (key_first, key_stop) = _bounds(queries, self.shape[0]), _bounds(keys, self.shape[1])
        q, k = slice(first, stop), slice(key_first, key_stop)
        whole = (first, stop, key_first, key_stop) == (0, self.shape[0], 0, self.shape[1])
        return changed(
            self,
            q_pos=self.q_pos[:, q],
            k_pos=self.k_pos[:, k],
            start=self.start + first - key_first,
            q_document=None if self.q_document is None else self.q_document[:, q],
            k_document=None if self.k_document is None else self.k_document[:, k],
            packed_sizes=self.packed_sizes if whole else None,
        )

    def with_past(self, past: "Geometry") -> "Geometry":
        """Prepend the keys of `past`: the geometry of these queries when `past` is in the KV cache."""
        q_document, k_document = _documents(self)
        _, past_document = _documents(past)
        plain = self.q_document is None and past.k_document is None
        # `consecutive` survives only a direct continuation: the positions are the very tensors that
        # `past.next_tokens` made (compared by identity, since reading values would synchronise the device), and the
        # last query of the past is its last key
        before, own = self.continues or (None, None)
        newest = 0 < past.shape[0] == past.shape[1] - past.start
        continued = newest and before is past.k_pos and own is self.q_pos is self.k_pos
        batch = max(self.k_pos.shape[0], past.k_pos.shape[0])
        return changed(
            self,
            k_pos=torch.cat([_rows(past.k_pos, batch), _rows(self.k_pos, batch)], 1),
            start=self.start + past.shape[1],
            q_document=None if plain else q_document,
            k_document=None if plain else torch.cat([_rows(past_document, batch), _rows(k_document, batch)], 1),
            consecutive=plain and continued and past.consecutive and self.consecutive,
            one_document=self.one_document and past.one_document,
            packed_sizes=None,
        )

    def next_tokens(self, tokens: int) -> "Geometry":
        """Return the geometry of the next `tokens` of each row: positions continue from its last key not padding."""
        _need_sizes(tokens=tokens)
        need(self.shape[1] > 0, "a continuation needs at least one key", "got none", "build a first geometry")
        last, document = self.k_pos[:, -1:], None
        if self.k_document is not None:
            batch = max(self.k_pos.shape[0], self.k_document.shape[0])
            order = torch.arange(self.shape[1], device=last.device)
            index = ((self.k_document != PADDING) * order).argmax(1)[:, None].expand(batch, 1)
            last = _rows(self.k_pos, batch).gather(1, index[..., None].expand(-1, -1, last.shape[-1]))
            document = _rows(self.k_document, batch).gather(1, index).expand(-1, tokens)
        pos = last + torch.arange(1, tokens + 1, device=last.device)[None, :, None]
        own = {"q_pos": pos, "k_pos": pos, "q_document": document, "k_document": document, "packed_sizes": None}
        return changed(self, **own, is_causal=True, start=0, continues=(self.k_pos, pos))


def _need_sizes(**counts: Any) -> None:
    """Raise unless these are counts; the symbolic sizes of torch.export are."""
    # there, a size is a tensor
    need_untraced()
    need_counts(**{name: count for name, count in counts.items() if not isinstance(count, torch.SymInt)})


def _bounds(part: slice, size: int) -> tuple[int, int]:
    """Begin and end of a slice of so many tokens, as `slice.indices`, which PyTorch 2.11 cannot trace."""
    ends = [part.start or 0, size if part.stop is None else part.stop]
    first, stop = (min(max(end + size if end < 0 else end, 0), size) for end in ends)
    return first, stop


def _evenly(tokens: int) -> Tensor:
    """Indices of at most so many tokens as are shown, from the first to the last."""
    return torch.linspace(0, max(0, tokens - 1), min(tokens, SHOWN_TOKENS)).round().long()


def _documents(where: Geometry) -> tuple[Int[Tensor, "#b i"], Int[Tensor, "#b j"]]:
    if where.q_document is not None and where.k_document is not None:
        return where.q_document, where.k_document
    return where.q_pos.new_zeros(where.q_pos.shape[:2]).long(), where.k_pos.new_zeros(where.k_pos.shape[:2]).long()


def _rows(tensor: Tensor, batch: int) -> Tensor:
    return tensor.expand(batch, *tensor.shape[1:])
