"""Held-out pieces to measure on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordinate.data.store import Piece, TokenStore
from ordinate.seeds import seed_of


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive tokens of one held-out document.

    Args:
        name: the document.
        tokens: one more than are read, so that each place has a next token.
    """

    name: str
    tokens: NDArray[np.int64]


def segments(store: TokenStore, length: int, limit: int) -> list[Segment]:
    """At most `limit` held-out pieces of `length` tokens, from as many different documents as there are.

    First one piece of each document that is long enough, then a second of each, and so on; where there are more
    documents than pieces wanted, they are spread evenly. Where in its document a piece lies is chosen by a hash of
    the document's name: files begin unlike they go on.

    Args:
        store: the text.
        length: tokens to read of each piece.
        limit: pieces at most.
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


def _places(piece: Piece, length: int) -> list[int]:
    count = (piece.stop - piece.start - 1) // length
    random = np.random.default_rng(seed_of(piece.name))
    return [piece.start + length * int(place) for place in random.permutation(count)]
