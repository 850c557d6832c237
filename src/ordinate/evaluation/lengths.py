"""The lengths at which models are evaluated, as multiples of the trained length or in tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ordinate.core.checks import need, need_positive, need_whole
from ordinate.evaluation.result import LeftOut
from ordinate.evaluation.subject import Subject

DEFAULT_MULTIPLES = (1, 2, 4, 8)
# positions that nothing can be measured with
SHORTEST = 2


@dataclass(frozen=True)
class Lengths:
    """Lengths to evaluate at.

    Args:
        multiples: as multiples of the length that each model was trained with; None: given in tokens.
        tokens: in tokens; None: given as multiples.

    Raises:
        ValueError: both or neither; or a length that is no multiple of the one before, so that the same tokens
            could not be predicted at every length.
    """

    multiples: tuple[int, ...] | None = DEFAULT_MULTIPLES
    tokens: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        need(
            (self.multiples is None) != (self.tokens is None),
            "lengths are multiples of the trained length, or tokens",
            f"got {self.multiples} and {self.tokens}",
            "give one of them",
        )
        given = self.given
        need(bool(given), "an evaluation needs a length", "got none", "give 1 2 4 8")
        for one in given:
            need_whole("a length", one)
            need_positive("length", one)
        for one, next_ in pairwise(given):
            need(
                next_ > one and next_ % one == 0,
                "each length must be a multiple of the one before, so that the same tokens are predicted at all",
                f"got {one} and {next_}",
                "give lengths such as 1 2 4 8",
            )
        need(
            self.tokens is None or given[0] >= SHORTEST,
            f"a length must have at least {SHORTEST} tokens",
            f"got {given[0]}",
            "give more",
        )

    @property
    def given(self) -> tuple[int, ...]:
        """The multiples, or the tokens."""
        return self.multiples or self.tokens or ()

    def of(self, subject: Subject) -> list[tuple[int, int]]:
        """Return the multiple (0: none) and the tokens of each length, for a model.

        Raises:
            ValueError: multiples for a model whose trained length is not known.
        """
        trained = subject.trained_length
        if self.tokens is not None:
            return [(one // trained if trained and one % trained == 0 else 0, one) for one in self.tokens]
        if trained is None:
            raise ValueError(
                f"multiples of the trained length need that length; {subject.name} does not record it; give "
                "--trained-length, or lengths in tokens by --tokens"
            )
        return [(times, times * trained) for times in self.multiples or ()]


def beyond_maximum(subject: Subject, lengths: Sequence[tuple[int, int]]) -> list[LeftOut]:
    """Return the lengths that a model cannot read, and why."""
    most = subject.max_length
    return [
        LeftOut(times, length, f"{subject.name} has positions for at most {most:,} tokens")
        for times, length in lengths
        if most is not None and length > most
    ]
