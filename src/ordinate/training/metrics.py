"""The loss of every step, in a file that only grows."""

import json
import os
from pathlib import Path


class Metrics:
    """One JSON line a step. A line torn by a sudden end is dropped when the file is read.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, loss: float) -> None:
        """Add the loss [nats a token] of a step, counted from 1."""
        with self.path.open("ab") as file:
            file.write(json.dumps({"step": step, "loss": loss}).encode() + b"\n")

    def read(self) -> list[tuple[int, float]]:
        """Every whole line: step and loss."""
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            row = json.loads(line)
            rows.append((int(row["step"]), float(row["loss"])))
        return rows

    def sync(self) -> None:
        """Make every line so far survive power loss."""
        with self.path.open("ab") as file:
            os.fsync(file.fileno())

    def truncate(self, step: int) -> None:
        """Forget every step after this one, so that going on from a checkpoint repeats none."""
        if not self.path.exists():
            return
        kept = 0
        for line in self.path.read_bytes().split(b"\n")[:-1]:
            if int(json.loads(line)["step"]) > step:
                break
            kept += len(line) + 1
        os.truncate(self.path, kept)
