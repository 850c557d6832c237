"""The append-only log of training losses."""

import json
import os
import zlib
from pathlib import Path

from ordinate.core.checks import need
from ordinate.training.io_errors import explain_write_errors


class Metrics:
    """A JSON Lines file with one line per step and a checksum; a torn last line is dropped on reading.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, loss: float) -> None:
        """Append the loss [nats per token] of a step, counted from 1."""
        with explain_write_errors("the loss of a step", self.path), self.path.open("ab") as file:
            file.write(json.dumps({"step": step, "loss": loss, "crc32": _checksum(step, loss)}).encode() + b"\n")

    def read(self) -> list[tuple[int, float]]:
        """Return (step, loss) of every line before the first corrupt one."""
        rows = []
        for line in self._lines():
            try:
                row = json.loads(line)
                step, loss = int(row["step"]), float(row["loss"])
            except (ValueError, KeyError, TypeError, RecursionError):
                # torn line: power loss before it reached the disk
                break
            if row.get("crc32", own := _checksum(step, loss)) != own:
                # bit flip
                break
            rows.append((step, loss))
        return rows

    def sync(self) -> None:
        """Flush all lines to disk (fsync)."""
        with explain_write_errors("the losses", self.path), self.path.open("ab") as file:
            os.fsync(file.fileno())

    def truncate(self, step: int) -> None:
        """Drop all steps after this one, so that resuming from a checkpoint does not log steps twice.

        Raises:
            ValueError: a step up to this one is missing.
        """
        rows = self.read()[:step]
        need(
            [done for done, _ in rows] == list(range(1, step + 1)),
            f"{self.path} must contain every step up to the checkpoint's, {step}",
            f"it has {len(rows)} valid lines",
            "restore the file, or delete the folder to start again",
        )
        if self.path.exists():
            os.truncate(self.path, sum(len(line) + 1 for line in self._lines()[:step]))

    def _lines(self) -> list[bytes]:
        return self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []


def _checksum(step: int, loss: float) -> int:
    return zlib.crc32(f"{step} {float(loss)!r}".encode())
