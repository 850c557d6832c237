"""A question about position in a model, and how it is answered by measuring."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from ordinate.finding import Finding
from ordinate.subject import Subject

# operations that a question may spend: under a minute on two cores
BUDGET = 6.2e12

Tell = Callable[[float], None]
"""Is told how much of a probe is done, between 0 and 1."""


@dataclass(frozen=True, eq=False)
class Material:
    """What a model is given to read: real texts, all of one length, or images.

    Args:
        ids: texts in tokens; the model's first token stands in front where it has one.
        images: pixels.
        source: where they come from, in a few words.
        natural: whether they are real; random tokens are not.
        budget: operations that a question may spend on reading it only to look, and two thirds as many on reading
            it with something changed; where all of it would cost more, less is read.
    """

    ids: Int[Tensor, "texts n"] | None
    images: Float[Tensor, "images channels height width"] | None
    source: str
    natural: bool = True
    budget: float = BUDGET


class Probe(ABC):
    """A question about position in a model.

    Must: `title` and `measure`. Constructor keywords are the options, with defaults.
    """

    title: ClassVar[str]
    """The question as people ask it."""

    @abstractmethod
    def measure(self, subject: Subject, material: Material, seed: int = 0, tell: Tell = lambda done: None) -> Finding:
        """Answer it for this model.

        Args:
            subject: the model.
            material: what it reads.
            seed: decides every random number.
            tell: is told how far it is.

        Raises:
            Unfit: it cannot be asked of this model, or not with this material; the reason goes into the report.
        """
