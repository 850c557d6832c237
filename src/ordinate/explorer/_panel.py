"""The contract of a panel: a question, its short answer with a measured number, and something to move."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

Word = Literal["Yes", "No", "It depends"]
# below it numbers are written with a power of ten
SMALL = 1e-3


@dataclass(frozen=True)
class Citation:
    """A number, or a chart, of a committed result.

    Args:
        file: the result file, from the root of the repository.
        name: name of an estimate in a finding, title of a chart; `row:column` in a table.
        unit: of a number in a table; of others the result says it.
    """

    file: str
    name: str
    unit: str = ""

    @property
    def key(self) -> str:
        """Name in `measured.json`."""
        return f"{self.file} {self.name}"


@dataclass(frozen=True)
class Number:
    """A measured number.

    Args:
        value: the number.
        low: lower end of its 95 % interval; None: exact, or none.
        high: upper end.
        unit: of all three.
    """

    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2g}"
        ends = (self.value, self.low, self.high)
        if max(map(abs, ends)) < SMALL:
            value, low, high = (f"{end:.1e}" if end else "0" for end in ends)
            return f"{value} [{low}, {high}]"
        # as many decimals as the interval supports
        places = max(0, -math.floor(math.log10((self.high - self.low) / 2)))
        value, low, high = (f"{round(end, places) + 0.0:.{places}f}" for end in ends)
        return f"{value} [{low}, {high}]"


@dataclass(frozen=True)
class Answer:
    """The short answer.

    Args:
        word: yes, no, or it depends.
        text: the rest, a sentence or two, with the measured number in it.
    """

    word: Word
    text: str


class Panel(ABC):
    """One question. Its other half is `js/panels/NAME.js`, which exports `render`.

    Must: `place`, `title`, `question`, `page`, `cited`, `answer`. May: `charts`, `models`.
    """

    place: ClassVar[int]
    """Place among the panels, from 1, unique."""
    title: ClassVar[str]
    """A word or two, for the list of panels."""
    question: ClassVar[str]
    page: ClassVar[str]
    """The page that answers it at length, below docs/."""
    cited: ClassVar[Citation]
    """Where the number of the answer comes from."""
    charts: ClassVar[tuple[Citation, ...]] = ()
    """Charts of committed results that the panel shows."""
    models: ClassVar[tuple[str, ...] | None] = None
    """The models that it runs, for a page of this panel alone; None: all."""

    @abstractmethod
    def answer(self, number: Number) -> Answer:
        """Return the short answer, with the cited number."""
