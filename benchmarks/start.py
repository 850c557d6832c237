"""Start-up time: wall-clock seconds of `ordinate --help`, and their ratio to an empty Python process."""

import statistics
import subprocess
import sys
import time

from benchmarks.harness.saving import save

ROUNDS = 11


def seconds(code: str, *arguments: str) -> float:
    """Return the wall-clock seconds of a Python process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main(keep: bool) -> None:
    """Measure both in turns, and print the result."""
    turns = [(seconds("from ordinate.cli.main import main; main()", "--help"), seconds("")) for _ in range(ROUNDS)]
    ours = statistics.median(first for first, _ in turns)
    ratio = statistics.median(first / second for first, second in turns)
    print(f"\nordinate --help takes {ours:.3f} s, {ratio:.1f} times an empty Python (median of {ROUNDS})")
    if keep:
        print(save("start", {"help_seconds": ours, "ratio_to_empty_python": ratio}))
