"""Results of which parts may be impossible to measure in a model: the value, and the reason of each missing part."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ordinate.probing._adapter import NotApplicable

Value = TypeVar("Value")
Default = TypeVar("Default")


@dataclass(frozen=True, eq=False)
class Measured(Generic[Value]):
    """What was measured, and why parts of it could not be.

    Args:
        value: the result, without the missing parts.
        missing: the reason of each part that could not be measured, by the name of the part.
    """

    value: Value
    missing: Mapping[str, str] = field(default_factory=dict)


def attempt(name: str, measure: Callable[[], Value], otherwise: Default = None) -> Measured[Value | Default]:
    """Return what a function measures; `otherwise`, with the reason, if that does not apply to the model.

    Args:
        name: what is measured.
        measure: measures it; raises `NotApplicable` if that is impossible.
        otherwise: the value if it is.
    """
    try:
        return Measured(measure())
    except NotApplicable as reason:
        return Measured(otherwise, {name: str(reason)})


def missing_parts(*found: Measured[Any]) -> dict[str, str]:
    """Return the reasons of everything that several measurements lack, in their order."""
    return {name: reason for one in found for name, reason in one.missing.items()}
