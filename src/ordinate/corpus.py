"""A text to learn from: documents by name, in a fixed order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ordinate import catalog

PACKAGE = "ordinate.corpora"


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


def find(text: str) -> Corpus:
    """The corpus of this name, or the files at this path.

    Raises:
        ValueError: neither a corpus nor a path.
    """
    from ordinate.corpora.files import Files

    known = [name for name in catalog.names(PACKAGE) if name != "files"]
    if text in known:
        return catalog.load(PACKAGE, Corpus, text)()
    if Path(text).exists():
        return Files(path=Path(text))
    near = get_close_matches(text, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "check the path"
    raise ValueError(
        f"a text is a corpus ({', '.join(known)}) or the path of a file or folder; {text!r} is neither; {hint}"
    )
