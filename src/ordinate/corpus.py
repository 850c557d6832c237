"""A text to learn from: documents by name, in a fixed order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A piece of text of bounded size.

    Args:
        source: the file it comes from; all documents of one source stand on the same side of a split.
        part: which piece of its source it is, from 0.
        text: what it says.
    """

    source: str
    part: int
    text: str

    @property
    def name(self) -> str:
        """The source, and the part if the source was cut."""
        return f"{self.source}#{self.part}" if self.part else self.source


class Corpus(ABC):
    """A text to learn from.

    Must: `name`, `fingerprint`, and `documents`, which gives the same documents in the same order each time.
    """

    name: str
    """What the report calls it."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Every document, one after another; none need be held beside another."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes when the text may have changed, quicker to get than the text."""
