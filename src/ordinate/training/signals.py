"""Signals that ask training to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def listening(stop: Handler) -> Iterator[None]:
    """SIGTERM and SIGINT go to `stop`; afterwards to whoever had them."""
    before = listen(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen(stop: Handler) -> dict[int, Any]:
    """Send signals to `stop`, where a thread may; who had each before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
