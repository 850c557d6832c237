"""Selection of held-out segments for evaluation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordinate.core.seeds import derive_seed
from ordinate.data.token_store import DocumentSpan, TokenStore


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive tokens of one held-out document.

    Args:
        name: the document.
        tokens: one token longer than the input, so that every position has a next-token target.
    """

    name: str
    tokens: NDArray[np.int64]


def segments(store: TokenStore, length: int, limit: int) -> list[Segment]:
    """Select at most `limit` held-out segments of `length` tokens, from as many different documents as possible.

    Takes one segment of each sufficiently long document, then a second of each, and so on; if there are more
    documents than segments, documents are chosen at even intervals. The position of a segment in its document is
    random, seeded by the document's name, because the beginnings of files are not representative.

    Args:
        store: the text.
        length: input tokens of each segment.
        limit: maximum number of segments.
    """
    tokens = store.validation
    pieces = [piece for piece in store.documents("validation") if piece.stop - piece.start > length]
    if len(pieces) > limit:
        kept = np.linspace(0, len(pieces) - 1, limit).round().astype(int)
        pieces = [pieces[index] for index in kept]
    places = [_places(piece, length) for piece in pieces]
    starts = [
        (piece.name, own[turn])
        for turn in range(max(map(len, places), default=0))
        for piece, own in zip(pieces, places, strict=True)
        if turn < len(own)
    ]
    return [Segment(name, np.asarray(tokens[start : start + length + 1], np.int64)) for name, start in starts[:limit]]


def _places(piece: DocumentSpan, length: int) -> list[int]:
    count = (piece.stop - piece.start - 1) // length
    random = np.random.default_rng(derive_seed(piece.name))
    return [piece.start + length * int(place) for place in random.permutation(count)]
