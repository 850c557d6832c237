"""Contract checks and their outcomes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from ordinate.core.devices import on_gpu

Subject = TypeVar("Subject")


class InapplicableError(Exception):
    """A check does not apply to its subject; the message says why."""


def makes_tensors_on_a_gpu() -> bool:
    """Whether tensors are made on a GPU at present, where NaN, infinity and positions are not looked at."""
    return on_gpu(torch.empty(0))


@dataclass(frozen=True)
class Check(Generic[Subject]):
    """One requirement of a contract, as a test.

    Args:
        name: the requirement as a sentence, words joined by underscores.
        run: raises an AssertionError if the requirement is violated, or `InapplicableError` if it does not apply.
    """

    name: str
    run: Callable[[Subject], None]


@dataclass(frozen=True)
class Outcome:
    """Result of one check.

    Args:
        name: name of the check.
        passed: whether the requirement is met; False if the check was skipped.
        skipped_reason: why the check does not apply; None: it was run.
        message: the failure; empty if there is none.
    """

    name: str
    passed: bool
    skipped_reason: str | None = None
    message: str = ""


def run_check(check: Check[Subject], subject: Subject) -> Outcome:
    """Run a check. Any exception of the subject is a failure of the check, not of the suite."""
    try:
        check.run(subject)
    except InapplicableError as reason:
        return Outcome(check.name, False, skipped_reason=str(reason))
    # SystemExit is no Exception: a subject that exits would end the suite, with any code
    except (Exception, SystemExit) as error:
        return Outcome(check.name, False, message=f"{type(error).__name__}: {error}")
    return Outcome(check.name, True)
