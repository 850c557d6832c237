"""Raise errors that say what must hold, what came, and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


def need(holds: bool, must: str, came: str, remedy: str) -> None:
    """Raise a ValueError of the form "what must hold; what came; what to do" unless `holds`.

    Args:
        holds: the condition that must be true.
        must: what must hold, as a clause ("rope needs an even head width").
        came: what came instead ("got 7").
        remedy: what the caller can do ("choose heads that divide width into even parts").
    """
    if not holds:
        raise ValueError(f"{must}; {came}; {remedy}")


def need_positive(name: str, value: float) -> None:
    """Raise unless `value` is above zero."""
    need(value > 0, f"{name} must be above zero", f"got {value}", f"give a positive {name}")


def need_fraction(name: str, value: float) -> None:
    """Raise unless `value` is a share in [0, 1)."""
    need(0 <= value < 1, f"{name} must lie in [0, 1)", f"got {value}", f"give a {name} of 0 or more, below 1")


def need_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise unless `name` is one of `known`, naming the nearest and listing them all."""
    choices = sorted(known)
    if name not in choices:
        near = get_close_matches(name, choices, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of them"
        listed = ", ".join(choices) if choices else "none at all"
        raise ValueError(f"no {kind} is named {name!r}; there are: {listed}; {hint}")
