"""Memory of a process: its highest and present resident set, and measurements in a process of their own."""

import ctypes
import resource
import subprocess
import sys
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
# parameters of mallopt by their numbers in malloc.h; the largest value that mallopt takes
TRIM_THRESHOLD, MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
# memory that is allocated at the start [GiB]
HELD = 6


def keep_freed() -> None:
    """Make the C library keep freed memory in this process, and allocate some from the beginning.

    The C library of Linux returns large blocks to the system at once. The page faults of allocating them again can
    cost many times the computation, and would then dominate the measurement; allocators made for large blocks keep
    them as well.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "mallopt"):
        library.mallopt(MMAP_THRESHOLD, LARGEST)
        library.mallopt(TRIM_THRESHOLD, -1)
        held = [torch.ones(2**28) for _ in range(HELD)]
        held.clear()


def in_own_process(module: str, *arguments: str, count: int = 1) -> list[int]:
    """Run `main()` of a module in a new process, and return the last `count` numbers that it prints.

    The highest resident set of a process never decreases: each measurement needs a process of its own.
    """
    command = [sys.executable, "-c", f"from {module} import main; main()", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [int(number) for number in done.stdout.split()[-count:]]


def highest() -> int:
    """Return the highest resident set of this process so far [bytes]."""
    # ru_maxrss of a new process starts with the memory of its parent, VmHWM does not
    if STATUS.is_file():
        return _status("VmHWM")
    # kilobytes, but bytes on macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Return the present resident set of this process [bytes]."""
    return _status("VmRSS") if STATUS.is_file() else highest()


def _status(name: str) -> int:
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
