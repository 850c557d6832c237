"""Progress events of long operations: one type for every callback."""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Progress:
    """A progress event.

    Args:
        item: name of what progresses, such as a run or a probe; empty: the operation as a whole.
        stage: what it is doing (reading, training, measuring), or its final state; empty: unchanged.
        done: amount done, in units of `total`: steps of training, or a fraction.
        total: amount in all; None: unknown.
        loss: training loss [nats per token]; None: none yet.
        message: text for the user.
    """

    item: str = ""
    stage: str = ""
    done: float | None = None
    total: float | None = None
    loss: float | None = None
    message: str = ""


OnProgress = Callable[[Progress], None]
"""Callback that receives progress events."""


def ignore(progress: Progress) -> None:
    """Discard the event: the default callback."""


def chain(*callbacks: OnProgress) -> OnProgress:
    """Return a callback that passes each event to these callbacks, in this order."""

    def report(progress: Progress) -> None:
        for callback in callbacks:
            callback(progress)

    return report


def for_item(on_progress: OnProgress, item: str, total: float | None = None) -> OnProgress:
    """Return a callback that adds the name of an item to events.

    Args:
        on_progress: receives the completed events.
        item: name of the item.
        total: the item's total; None: that of each event.
    """

    def report(progress: Progress) -> None:
        on_progress(replace(progress, item=item, total=progress.total if total is None else total))

    return report


def subrange(on_progress: OnProgress, start: float, end: float) -> OnProgress:
    """Return a callback for a part of an operation: its fractions from 0 to 1 are reported as `start` to `end`."""

    def report(progress: Progress) -> None:
        if progress.done is not None:
            part = progress.done / (progress.total or 1.0)
            progress = replace(progress, done=start + (end - start) * part, total=1.0)
        on_progress(progress)

    return report


def fraction(done: float) -> Progress:
    """Return the event that a fraction is done, between 0 and 1."""
    return Progress(done=done, total=1.0)
