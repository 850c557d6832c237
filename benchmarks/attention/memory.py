"""How much memory a forward and a backward pass hold above their inputs."""

import argparse
import ctypes
import resource
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.attention.contenders import BASE, PEERS, Prepare, Size, ours, plain
from benchmarks.attention.measuring import TYPES, stepped

STATUS = Path("/proc/self/status")
# of mallopt, as malloc.h numbers them; a block as large as it can be told of
TRIM_THRESHOLD, MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
# what is held from the beginning [GiB]
HELD = 6


def keep_freed() -> None:
    """Let this process keep the memory that it frees, and have some from the beginning.

    The C library of Linux gives large blocks back at once. Taking pages anew may cost many times what is computed in
    them, which would be all that is measured; allocators that are made for large blocks keep them.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "mallopt"):
        library.mallopt(MMAP_THRESHOLD, LARGEST)
        library.mallopt(TRIM_THRESHOLD, -1)
        held = [torch.ones(2**28) for _ in range(HELD)]
        held.clear()


def contender(name: str) -> Prepare:
    """Who is called so: the base, a peer, or one of ours."""
    if name == BASE:
        return plain
    if name in PEERS:
        return PEERS[name]
    return ours(name)


def peak(name: str, tokens: int, type: str) -> int:
    """Bytes above the inputs, measured in a process of its own."""
    command = [sys.executable, "-c", "from benchmarks.attention.memory import main; main()", name, str(tokens), type]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1])


def held(name: str, tokens: int, type: torch.dtype) -> int:
    """Bytes above the inputs, of this process."""
    torch.set_num_threads(1)
    prepare = contender(name)
    # what is loaded or built at first use is not what a pass holds
    stepped(prepare(Size(512), type, True))()
    forward, leaves = prepare(Size(tokens), type, True)
    upstream = torch.randn(leaves[0].shape).to(type)
    before = resident()
    out = forward()
    torch.autograd.grad(out, leaves, upstream.view_as(out))
    return highest() - before


def highest() -> int:
    """The most bytes that this process has held so far."""
    # what getrusage says begins with the memory of the process that started this one
    if STATUS.is_file():
        return _status("VmHWM")
    # kilobytes, but bytes on a Mac
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """The bytes that this process holds now."""
    return _status("VmRSS") if STATUS.is_file() else highest()


def _status(name: str) -> int:
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Print it for a contender, a number of tokens and a type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("tokens", type=int)
    parser.add_argument("type", choices=TYPES)
    chosen = parser.parse_args()
    print(held(chosen.name, chosen.tokens, TYPES[chosen.type]))
