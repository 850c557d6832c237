"""The contract of text corpora: named documents in a fixed order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A piece of text of bounded size.

    Args:
        source: the file it comes from; all documents of a source are on the same side of the held-out split.
        part: index of this part of its source, from 0.
        text: the text.
    """

    source: str
    part: int
    text: str

    @property
    def name(self) -> str:
        """The source, with the part index if the source was split."""
        return f"{self.source}#{self.part}" if self.part else self.source


class Corpus(ABC):
    """A text corpus.

    Must: `name`, `fingerprint`, and `documents`, which yields the same documents in the same order each time.
    """

    name: str
    """Name in the report."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield the documents one by one, so that the corpus need not fit into memory."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a string that changes if the text may have changed, without reading the text."""
