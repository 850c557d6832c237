"""One promise that a member makes, and whether it holds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Subject = TypeVar("Subject")


class InapplicableError(Exception):
    """A check does not apply to its subject; the message says why."""


@dataclass(frozen=True)
class Check(Generic[Subject]):
    """A promise that can be tried out on any member.

    Args:
        name: the promise as a sentence, words joined by underscores.
        run: raises an AssertionError where the promise is broken, or `InapplicableError` where it does not apply.
    """

    name: str
    run: Callable[[Subject], None]


@dataclass(frozen=True)
class Outcome:
    """What came of one check.

    Args:
        name: the check's.
        passed: whether the promise holds; False where the check was skipped.
        skipped_reason: why the check does not apply; None: it was run.
        message: what went wrong; empty where nothing did.
    """

    name: str
    passed: bool
    skipped_reason: str | None = None
    message: str = ""


def outcome(check: Check[Subject], subject: Subject) -> Outcome:
    """Run a check. Whatever the subject raises is a broken promise, not a crash of the suite."""
    try:
        check.run(subject)
    except InapplicableError as reason:
        return Outcome(check.name, False, skipped_reason=str(reason))
    except Exception as error:
        return Outcome(check.name, False, message=f"{type(error).__name__}: {error}")
    return Outcome(check.name, True)
