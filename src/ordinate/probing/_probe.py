"""The contract of a probe: one question about position in a model, answered by measurements."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.finding import Finding
from ordinate.core.progress import OnProgress, ignore
from ordinate.probing._adapter import ModelAdapter

# operations that a probe may spend by default: under a minute on two cores
DEFAULT_BUDGET = 6.2e12


@dataclass(frozen=True, eq=False)
class ProbeData:
    """Input of a probe: token sequences of one length, or images.

    Args:
        ids: token ids; each sequence starts with the first token of the model (BOS, [CLS]) if it has one.
        images: pixels.
        source: short description of their origin.
        natural: whether they are real data; False for random tokens.
        budget: operations that a probe may spend on observation passes, and two thirds as many on passes with
            interventions; if all samples would cost more, fewer or shorter ones are used.
    """

    ids: Int[Tensor, "texts n"] | None
    images: Float[Tensor, "images channels height width"] | None
    source: str
    natural: bool = True
    budget: float = DEFAULT_BUDGET


class Probe(ABC):
    """A question about position in a model.

    Must: `title` and `measure`. May: `beyond_training`. Constructor keywords are the options, with defaults.
    """

    title: ClassVar[str]
    """The question in plain words, to be answered by yes or no."""
    beyond_training: ClassVar[bool] = False
    """Whether it reads texts beyond the trained length of the model; others get texts cut to it."""

    @abstractmethod
    def measure(
        self, model: ModelAdapter, data: ProbeData, seed: int = 0, on_progress: OnProgress = ignore
    ) -> Finding:
        """Run the probe on a model.

        Args:
            model: the model.
            data: the input.
            seed: random seed.
            on_progress: progress callback.

        Raises:
            NotApplicable: the probe does not apply to this model or this input; the reason goes into the report.
        """
