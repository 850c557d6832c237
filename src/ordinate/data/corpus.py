"""The contract of text corpora: named documents in a fixed order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

# names of files that a description has for each reason
MAX_NAMES = 3


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


@dataclass(frozen=True)
class LeftOut:
    """Files that a corpus leaves out: how many for each reason, and the names of the first.

    Args:
        counts: number of files and folders, by reason.
        names: names of the first of them, by reason.
    """

    counts: dict[str, int] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str) -> None:
        """Count a file that was left out, and keep its name unless there are many."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.names.setdefault(reason, [])
        if len(names) < MAX_NAMES:
            names.append(name)

    @property
    def record(self) -> dict[str, str]:
        """The entry of a manifest: nothing if nothing is left out."""
        return {"left_out": self.describe()} if self.counts else {}

    def describe(self, frame: str = "{}") -> str:
        """Describe what is left out, inside a frame: "2 binary (a, b), 1 empty (c)"; empty if there is nothing."""
        parts = []
        for reason, count in sorted(self.counts.items()):
            more = ", ..." if count > len(self.names[reason]) else ""
            parts.append(f"{count} {reason} ({', '.join(self.names[reason])}{more})")
        return frame.format(", ".join(parts)) if parts else ""


class Corpus(ABC):
    """A text corpus.

    Must: `name`, `fingerprint`, and `documents`, which yields the same documents in the same order each time.
    """

    name: str
    """Name in the report."""

    @property
    def left_out(self) -> LeftOut:
        """Files that are left out, by reason; by default none."""
        return LeftOut()

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """Yield the documents one by one, so that the corpus need not fit into memory."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a string that changes if the text may have changed, without reading the text."""
