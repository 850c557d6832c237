"""The contract of checks: what both libraries compute, and how it is judged."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

from ordinate.pretrained.verification._runner import Runner
from ordinate.pretrained.verification.outputs import Results
from ordinate.pretrained.verification.result import CheckResult


class IncomparableError(ValueError):
    """What a check computed cannot be compared; the message is the whole reason."""


class Check(ABC):
    """One check of a verification.

    Both models are run in `dtype`, and that of transformers again in `exact_dtype`, which gives its rounding error.

    Must: `name`, `about`, `ours`, `theirs` and `judge`.
    May: `dtype`, `exact_dtype`, `reason`, `relative_cost`.

    Args:
        runner: calls the models; it draws the inputs of this check.
    """

    name: ClassVar[str]
    """Name: what `--checks` takes."""
    about: ClassVar[str]
    """What is compared, in one line."""
    dtype: ClassVar[torch.dtype] = torch.float32
    """Type of the parameters of both models."""
    exact_dtype: ClassVar[torch.dtype] = torch.float64
    """Type of the parameters in which transformers is run again, to measure its rounding error."""
    relative_cost: ClassVar[float] = 1.0
    """Duration beside a forward pass without padding, for estimates of the time left."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    @classmethod
    def reason(cls, runner: Runner) -> str | None:
        """Return why the check does not apply to this model; None: it does."""
        return None

    @abstractmethod
    def ours(self, model: Any) -> Results:
        """Compute what is compared with the Ordinate model."""

    @abstractmethod
    def theirs(self, model: Any) -> Results:
        """Compute what is compared with the transformers model."""

    @abstractmethod
    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        """Compare the results.

        Args:
            ours: of Ordinate in `dtype`.
            theirs: of transformers in `dtype`.
            exact: of transformers in `exact_dtype`.
        """
