"""Argument checks. Each error message has three parts: what must hold; what was given; how to fix it."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any

# most characters of a value in a message
SHOWN = 80


def need(holds: bool, must: str, came: str | Callable[[], str], remedy: str) -> None:
    """Raise a ValueError "requirement; given value; remedy" unless `holds`.

    Args:
        holds: the condition.
        must: the requirement, as a clause ("rope needs an even head width").
        came: the given value ("got 7"), or a function that returns this text: under torch.compile a symbolic size
            cannot be formatted.
        remedy: what the caller can do ("choose heads that divide width into even parts").
    """
    if not holds:
        raise ValueError(f"{must}; {came if isinstance(came, str) else came()}; {remedy}")


def shown(value: Any) -> str:
    """Return the representation of a value for a message, shortened if it is long."""
    # a whole number of many digits has no representation in Python
    large = isinstance(value, int) and abs(value) >= 10**SHOWN
    text = f"a number of {value.bit_length()} bits" if large else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Add the path to the errors of wrong values that are raised meanwhile, unless they name the file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if path.name in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{error} (in {path})") from error


# messages are formatted only on failure: under torch.compile a symbolic number cannot be formatted
def need_positive(name: str, value: Any) -> None:
    """Raise unless `value` is a finite number above zero."""
    _need_number(name, value)
    if not value > 0:
        raise ValueError(f"{name} must be above zero; got {shown(value)}; give a positive {name}")
    if not value < math.inf:
        raise ValueError(f"{name} must be finite; got {shown(value)}; give a number")


def need_number(name: str, value: Any) -> None:
    """Raise unless `value` is a finite real number."""
    _need_number(name, value)
    if not -math.inf < value < math.inf:
        raise ValueError(f"{name} must be a finite number; got {value}; leave it out, or give a number")


def need_whole(name: str, value: Any) -> None:
    """Raise unless `value` is an integer; a truth value is none."""
    if not isinstance(value, int | Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number; got {shown(value)}; give one such as 8")


def need_positive_counts(**counts: Any) -> None:
    """Raise unless each keyword argument is an integer above zero."""
    for name, value in counts.items():
        need_whole(name, value)
        need_positive(name, value)


def need_seed(seed: Any) -> None:
    """Raise unless `seed` is a whole number that every generator takes: 0 to 2^63 - 1."""
    need_whole("seed", seed)
    need(0 <= seed < 1 << 63, "seed must be 0 to 2^63 - 1", f"got {shown(seed)}", "give such a number")


def plain_number(value: Any) -> Any:
    """Return a number of NumPy as Python's int or float; anything else as it is."""
    # numbers of Python, True among them, and symbolic sizes of torch.compile are left alone
    if isinstance(value, int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def need_counts(**counts: Any) -> None:
    """Raise unless each keyword argument is a non-negative integer."""
    for name, value in counts.items():
        need_whole(name, value)
        if not value >= 0:
            raise ValueError(f"{name} must not be negative; got {value}; give how many there are")


def need_each_count(name: str, values: Any) -> None:
    """Raise unless `values` is a sequence of non-negative integers."""
    if not isinstance(values, Sequence):
        raise TypeError(f"{name} lengths must be a list; got {type(values).__name__}; give a list such as [3, 5]")
    need_counts(**{f"{name} {index}": value for index, value in enumerate(values)})


def need_window(window: Any) -> None:
    """Raise unless `window` is None or an integer above zero that a tensor can hold."""
    if window is not None:
        need_whole("window", window)
        need(
            window > 0, "a window holds at least the token itself", f"got {shown(window)}", "give 1 or more, or None"
        )
        need(window < 2**62, "a window must be below 2^62", f"got {shown(window)}", "give None for no window")


def need_fraction(name: str, value: Any) -> None:
    """Raise unless `value` is a fraction in [0, 1)."""
    _need_number(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1); got {value}; give a {name} of 0 or more, below 1")


def _need_number(name: str, value: Any) -> None:
    if not isinstance(value, int | float | Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number; got {shown(value)}; give a positive {name}")


def need_type(name: str, value: Any, kind: type, remedy: str) -> None:
    """Raise a TypeError unless `value` is None or an instance of `kind`."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__} or None; got {type(value).__name__}; {remedy}")


def need_known(kind: str, name: Any, known: Iterable[str]) -> None:
    """Raise unless `name` is one of `known`; the message lists all of them and suggests the closest."""
    choices = sorted(known)
    if name not in choices:
        near = get_close_matches(name[:SHOWN] if isinstance(name, str) else shown(name), choices, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of them"
        listed = ", ".join(choices) if choices else "none at all"
        raise ValueError(f"no {kind} is named {shown(name)}; there are: {listed}; {hint}")
