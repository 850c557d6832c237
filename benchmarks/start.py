"""How long `ordinate --help` takes, as seconds and against an empty Python."""

import statistics
import subprocess
import sys
import time

from benchmarks.saving import save

ROUNDS = 11


def seconds(code: str, *arguments: str) -> float:
    """Wall-clock seconds of a process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main(keep: bool) -> None:
    """Measure in turns."""
    turns = [(seconds("from ordinate.cli.main import main; main()", "--help"), seconds("")) for _ in range(ROUNDS)]
    ours = statistics.median(first for first, _ in turns)
    ratio = statistics.median(first / second for first, second in turns)
    print(f"\nordinate --help takes {ours:.3f} s, {ratio:.1f} times an empty Python (median of {ROUNDS})")
    if keep:
        print(save("start", {"help_seconds": ours, "ratio_to_empty_python": ratio}))
