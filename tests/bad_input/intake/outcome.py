"""The kind of outcome of one input: clear, right, obscure, silently wrong, NaN, hanging."""

import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import ordinate

SOURCE = Path(ordinate.__file__).parent
KINDS = ("clear", "right", "obscure", "silently wrong", "NaN", "hanging")
GOOD = KINDS[:2]
SECONDS, GIGABYTES, WAITING = 10, 4, 6
# what must hold; what came; what to do
THREE_PARTS = re.compile(r".{8,}?; .+; .{4,}", re.DOTALL)
FOREIGN = re.compile(r"pydantic|Traceback|https?://|\[Errno|<class |object at 0x")


class Wrong(Exception):
    """An input was accepted, with a result that does not follow from it."""


class Refused(Exception):
    """A command ended with the code of bad input; the text is what it printed."""


@dataclass
class Attempt:
    """One input.

    Args:
        what: what is wrong with it.
        names: of which the message must have one: the file, the option or the key.
        ask: reads the input; returns the numbers that it gives, or raises `Wrong`.
    """

    what: str
    names: tuple[str, ...]
    ask: Callable[[], Any]


def judge(attempt: Attempt) -> tuple[str, str]:
    """Read an input; return the kind of outcome, and what was said."""
    try:
        with bounded(SECONDS):
            found = attempt.ask()
    except (Late, MemoryError) as error:
        return "hanging", repr(error)
    except Wrong as error:
        return "silently wrong", str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if "not enough memory" in str(error) or "allocate memory" in str(error):
            return "hanging", str(error)
        return _judged_message(error, attempt.names)
    bad = [one for one in numbers(found) if not bool(torch.as_tensor(one).isfinite().all())]
    return ("NaN", "a number is not finite") if bad else ("right", "")


def _judged_message(error: BaseException, names: tuple[str, ...]) -> tuple[str, str]:
    text = str(error)
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    own = isinstance(error, Refused)
    problems = [
        (not own and not isinstance(error, ValueError | TypeError), f"{type(error).__name__} in {last.name}"),
        (not own and SOURCE not in last.parents, f"raised in {last}"),
        (not THREE_PARTS.search(text), "not in three parts"),
        (bool(FOREIGN.search(text)), "words of a library"),
        (not any(name in text for name in names), f"names none of {', '.join(names)}"),
        (len(text) > 3000, f"{len(text)} characters"),
    ]
    found = [problem for wrong, problem in problems if wrong]
    return ("obscure", f"{'; '.join(found)}: {text[:300]}") if found else ("clear", text)


class Late(BaseException):
    """The time is up."""


@contextmanager
def bounded(seconds: int, gigabytes: int = GIGABYTES) -> Iterator[None]:
    """Limit the time, and the memory beyond that in use."""

    def ring(*_: object) -> None:
        raise Late(f"longer than {seconds} s of processor time, or {WAITING} times that")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = {number: signal.signal(number, ring) for number in (signal.SIGALRM, signal.SIGPROF)}
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (gigabytes << 30), hard))
    # processor time, since the machine may have other work; and a limit for an input that waits
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(WAITING * seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in before.items():
            signal.signal(number, handler)


def numbers(found: Any) -> list[Any]:
    """Return the tensors and numbers in a result."""
    if isinstance(found, dict):
        return numbers(list(found.values()))
    if isinstance(found, list | tuple):
        return [one for part in found for one in numbers(part)]
    return [found] if isinstance(found, torch.Tensor | float | int) else []
