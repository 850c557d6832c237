"""A report that is built again as the runs of a study end."""

import time
from contextlib import suppress
from pathlib import Path
from threading import Lock

from ordinate.core.progress import OnProgress, Progress
from ordinate.report.build import build_report
from ordinate.study.run import STATES

# runs that must have ended before there is something to compare
FIRST_RUNS = 2
# the longer a report takes, the longer the wait for the next, in multiples of that time
PATIENCE = 20.0


class GrowingReport:
    """Builds the report of a study in progress each time that a run ends, from the second on.

    It is skipped while another is being built, and for a while after one that took long; the complete report is built
    at the end of the study.

    Args:
        folder: folder of the study.
        on_progress: receives a message with the path of the first report.
    """

    def __init__(self, folder: Path, on_progress: OnProgress) -> None:
        self.folder, self._tell = folder, on_progress
        self._ended, self._next, self._lock = 0, 0.0, Lock()

    def on_progress(self, progress: Progress) -> None:
        """Build the report if this event is the end of a run."""
        if not progress.item or progress.stage not in STATES or progress.stage == "pending":
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._ended += 1
            if self._ended >= FIRST_RUNS and time.monotonic() >= self._next:
                self._build()
        finally:
            self._lock.release()

    def _build(self) -> None:
        began = time.monotonic()
        # what is wrong with the folder is said when the complete report is built
        with suppress(OSError, ValueError):
            built = build_report(self.folder)
            if not self._next:
                self._tell(Progress(message=f"report so far, built again as runs end: {built.path}"))
        now = time.monotonic()
        self._next = now + PATIENCE * (now - began)
