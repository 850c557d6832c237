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


def segments(store: TokenStore, length: int, limit: int, *, bytes_known: bool = False) -> list[Segment]:
    """Select at most `limit` held-out segments of `length` tokens, from as many different documents as possible.

    Takes one segment of each sufficiently long document, then a second of each, and so on; if there are more
    documents than segments, documents are chosen at even intervals. The position of a segment in its document is
    random, seeded by the document's name, because the beginnings of files are not representative.

    Args:
        store: the text.
        length: input tokens of each segment.
        limit: maximum number of segments.
        bytes_known: leave out segments with the unknown token of a published tokenizer: how many bytes of the text
            it replaced is unknown.
    """
    tokens, unknown = store.validation, store.tokenizer.unknown_token
    counted = bytes_known and unknown is not None
    lost = np.flatnonzero(tokens == unknown) if counted else np.zeros(0, np.int64)
    found = [(piece.name, _places(piece, length, lost)) for piece in store.documents("validation")]
    found = [(name, places) for name, places in found if places]
    if len(found) > limit:
        kept = np.linspace(0, len(found) - 1, limit).round().astype(int)
        found = [found[index] for index in kept]
    starts = [
        (name, places[turn])
        for turn in range(max((len(places) for _, places in found), default=0))
        for name, places in found
        if turn < len(places)
    ]
    return [Segment(name, np.asarray(tokens[start : start + length + 1], np.int64)) for name, start in starts[:limit]]


def _places(piece: DocumentSpan, length: int, lost: NDArray[np.int64]) -> list[int]:
    """Return where segments of a document begin, in random order; none has a token at the places `lost`."""
    count = max(0, piece.stop - piece.start - 1) // length
    random = np.random.default_rng(derive_seed(piece.name))
    begins = piece.start + length * random.permutation(count)
    free = np.searchsorted(lost, begins) == np.searchsorted(lost, begins + length + 1)
    return [int(begin) for begin in begins[free]]
