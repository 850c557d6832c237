"""The loss of every step, in a file that only grows."""

import json
import os
import zlib
from pathlib import Path

from ordinate.checks import need
from ordinate.training.disk import writing


class Metrics:
    """One JSON line a step, with a checksum. A line torn by a sudden end is dropped when the file is read.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, loss: float) -> None:
        """Add the loss [nats a token] of a step, counted from 1."""
        with writing("the loss of a step", self.path), self.path.open("ab") as file:
            file.write(json.dumps({"step": step, "loss": loss, "crc32": _checksum(step, loss)}).encode() + b"\n")

    def read(self) -> list[tuple[int, float]]:
        """Step and loss of every line up to the first that is not as it was written."""
        rows = []
        for line in self._lines():
            try:
                row = json.loads(line)
                step, loss = int(row["step"]), float(row["loss"])
            except (ValueError, KeyError, TypeError):
                # power was lost before this line was on the disk
                break
            if row.get("crc32", own := _checksum(step, loss)) != own:
                # a bit has flipped
                break
            rows.append((step, loss))
        return rows

    def sync(self) -> None:
        """Make every line so far survive power loss."""
        with writing("the losses", self.path), self.path.open("ab") as file:
            os.fsync(file.fileno())

    def truncate(self, step: int) -> None:
        """Forget every step after this one, so that going on from a checkpoint repeats none.

        Raises:
            ValueError: a step up to this one is missing.
        """
        rows = self.read()[:step]
        need(
            [done for done, _ in rows] == list(range(1, step + 1)),
            f"{self.path} holds each step up to the checkpoint's, {step}",
            f"it holds {len(rows)} whole lines",
            "put the file back, or delete the folder to begin again",
        )
        if self.path.exists():
            os.truncate(self.path, sum(len(line) + 1 for line in self._lines()[:step]))

    def _lines(self) -> list[bytes]:
        return self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []


def _checksum(step: int, loss: float) -> int:
    return zlib.crc32(f"{step} {float(loss)!r}".encode())
