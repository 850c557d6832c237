"""Text to evaluate published models on: the same pieces of documents, cut into the tokens of each model."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from ordinate.core.seeds import derive_seed
from ordinate.data.corpus import Corpus, Document
from ordinate.data.heldout_segments import segments
from ordinate.data.token_store import TokenStore
from ordinate.data.tokenizer import Tokenizer

# documents that are looked at for each piece that is wanted: some turn out too short
CANDIDATES = 4
# text from which the bytes of a token are measured [characters]
MEASURED_CHARACTERS = 1 << 14
# the last tokens of a text that is cut off may differ from those of the whole text
UNCERTAIN_TOKENS = 8


@dataclass(frozen=True, eq=False)
class TokenPieces:
    """Pieces of documents, as tokens of one model.

    Args:
        tokens: one token longer than what is read, so that every position has a next-token target.
        ends: where each token ends in the text of its piece [bytes].
        stop: targets that end behind it are not predicted [bytes]; None: all are.
    """

    tokens: Int[Tensor, "pieces length_and_one"]
    ends: Int[Tensor, "pieces length_and_one"]
    stop: Int[Tensor, "pieces"] | None = None

    @property
    def inside(self) -> Bool[Tensor, "pieces length"]:
        """Which targets end by `stop`, and so are predicted."""
        ends = self.ends[:, 1:]
        return torch.ones_like(ends, dtype=torch.bool) if self.stop is None else ends <= self.stop[:, None]

    @property
    def sizes(self) -> Int[Tensor, "pieces length"]:
        """Bytes of each target."""
        return self.ends[:, 1:] - self.ends[:, :-1]


@dataclass(frozen=True, eq=False)
class TextSample:
    """The same pieces of documents for several models.

    Args:
        pieces: the tokens of each model.
        documents: document index of each piece.
        names: document names.
    """

    pieces: Sequence[TokenPieces]
    documents: Int[Tensor, "pieces"]
    names: Sequence[str]


class TextSource(ABC):
    """Where pieces of documents are taken from."""

    name: str
    """Name of the text."""

    @property
    @abstractmethod
    def bytes_per_token(self) -> float:
        """Bytes of a token, for the tokenizer with the longest tokens, measured on a part of the text."""

    @abstractmethod
    def sample(self, lengths: Sequence[int], samples: int) -> TextSample | None:
        """Cut pieces of these lengths from as many different documents as possible.

        Args:
            lengths: tokens that each model reads.
            samples: largest number of pieces.

        Returns:
            The pieces; None if no document is long enough.
        """


class HeldOutText(TextSource):
    """The held-out text of a study: the same sequences that its models were evaluated on.

    Args:
        store: the prepared text of the study.
        models: number of models, which all have its tokenizer.
    """

    def __init__(self, store: TokenStore, models: int) -> None:
        self.store, self.models, self.name = store, models, str(store.manifest["name"])

    @property
    def bytes_per_token(self) -> float:
        part = np.asarray(self.store.validation[:MEASURED_CHARACTERS], np.int64)
        return max(1.0, float(self.store.tokenizer.byte_lengths[part].mean())) if len(part) else 1.0

    def sample(self, lengths: Sequence[int], samples: int) -> TextSample | None:
        found = segments(self.store, max(lengths), samples)
        if not found:
            return None
        names = sorted({segment.name for segment in found})
        tokens = torch.from_numpy(np.stack([segment.tokens for segment in found]))
        ends = torch.from_numpy(self.store.tokenizer.byte_lengths.astype(np.int64))[tokens].cumsum(1)
        documents = torch.tensor([names.index(segment.name) for segment in found])
        return TextSample([TokenPieces(tokens, ends)] * self.models, documents, names)


class CorpusText(TextSource):
    """A corpus, cut into the tokens of each model.

    Each document gives one piece, then a second, and so on. Documents are taken in the order of a hash of their
    names, and a piece begins at a random place of its document, seeded by the name: beginnings are not typical.
    Consecutive parts of one file that are too short are joined.

    Args:
        corpus: the text.
        tokenizers: the tokenizer of each model.
        is_chosen: which documents may be used.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizers: Sequence[Tokenizer],
        is_chosen: Callable[[Document], bool] = lambda document: True,
    ) -> None:
        self.corpus, self.tokenizers, self.is_chosen, self.name = corpus, tokenizers, is_chosen, corpus.name

    @cached_property
    def bytes_per_token(self) -> float:
        text = ""
        for document in self.corpus.documents():
            text += document.text[: MEASURED_CHARACTERS - len(text)]
            if len(text) >= MEASURED_CHARACTERS:
                break
        counts = [max(1, len(tokenizer.encode_plain(text))) for tokenizer in self.tokenizers]
        return max(1.0, len(text.encode()) / min(counts))

    def sample(self, lengths: Sequence[int], samples: int) -> TextSample | None:
        needed = round(1.1 * max(lengths) * self.bytes_per_token) + 1
        documents = _joined(self.corpus, needed, self.is_chosen)
        long_enough = (one for one in documents if len(one.text.encode()) > max(lengths))
        chosen = heapq.nsmallest(CANDIDATES * samples, long_enough, key=lambda one: derive_seed("evaluate", one.name))
        found: list[tuple[str, list[list[_Piece]]]] = []
        for document in chosen:
            pieces = list(_cut(document, self.tokenizers, lengths, 1 if len(chosen) >= samples else samples))
            if pieces:
                found.append((document.name, pieces))
            if len(found) == samples:
                break
        most = max((len(pieces) for _, pieces in found), default=0)
        turns = [(name, own[turn]) for turn in range(most) for name, own in found if turn < len(own)][:samples]
        if not turns:
            return None
        names = sorted({name for name, _ in turns})
        rows = [TokenPieces(*_stacked([piece[place] for _, piece in turns])) for place in range(len(self.tokenizers))]
        return TextSample(rows, torch.tensor([names.index(name) for name, _ in turns]), names)


@dataclass(frozen=True, eq=False)
class _Piece:
    """Tokens of one piece, where each ends [bytes], and where the piece ends in its document [characters]."""

    tokens: NDArray[np.int64]
    ends: NDArray[np.int64]
    stop: int


def _stacked(pieces: Sequence[_Piece]) -> tuple[Tensor, Tensor]:
    return (
        torch.from_numpy(np.stack([piece.tokens for piece in pieces])),
        torch.from_numpy(np.stack([piece.ends for piece in pieces])),
    )


def _joined(corpus: Corpus, needed: int, is_chosen: Callable[[Document], bool]) -> Iterator[Document]:
    """Yield the documents, joining consecutive parts of one source until they have so many bytes."""
    held: Document | None = None
    for document in corpus.documents():
        if not is_chosen(document):
            continue
        follows = held is not None and held.source == document.source
        if held is not None and not (follows and len(held.text.encode()) < needed):
            yield held
            held = None
        held = document if held is None else Document(held.source, held.part, held.text + document.text)
    if held is not None:
        yield held


def _cut(
    document: Document, tokenizers: Sequence[Tokenizer], lengths: Sequence[int], most: int
) -> Iterator[list[_Piece]]:
    """Yield pieces of a document that do not overlap, from a random place to its end, then from its beginning."""
    text, count = document.text, 0
    first = derive_seed("evaluate", document.name) % max(1, len(text) - max(lengths))
    for start, stop in ((first, len(text)), (0, first), (0, len(text))):
        # both parts may be too short where the whole is not
        if count and start == 0 and stop == len(text):
            return
        place = _word_start(text, start)
        while count < most and (piece := _piece(text[place:stop], tokenizers, lengths)):
            yield piece
            count += 1
            place = _word_start(text, place + max(part.stop for part in piece))


def _word_start(text: str, place: int) -> int:
    """Return the start of the next word or line, so that no tokenizer begins inside a word."""
    if place == 0 or place >= len(text) or text[place - 1].isspace():
        return place
    following = next((at for at in range(place, len(text)) if text[at].isspace()), len(text))
    return following + 1


def _piece(text: str, tokenizers: Sequence[Tokenizer], lengths: Sequence[int]) -> list[_Piece]:
    """Cut the beginning of a text into tokens of each model; empty if it is too short for one of them."""
    found = []
    for tokenizer, length in zip(tokenizers, lengths, strict=True):
        # a token has a character or more, in all but byte-level tokenizers of other scripts
        size = 4 * (length + UNCERTAIN_TOKENS)
        tokens, ends = tokenizer.encode_with_ends(text[:size])
        while len(tokens) <= length + UNCERTAIN_TOKENS and size < len(text):
            size *= 2
            tokens, ends = tokenizer.encode_with_ends(text[:size])
        if len(tokens) <= length:
            return []
        ends = ends[: length + 1]
        stop = len(text.encode()[: int(ends[-1])].decode(errors="ignore"))
        found.append(_Piece(tokens[: length + 1].astype(np.int64), ends, stop))
    return found
