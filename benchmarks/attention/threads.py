"""Speed-up by a second thread."""

import statistics
import time

import torch

from benchmarks.attention.contenders import BASE, Size
from benchmarks.attention.memory import contender
from benchmarks.harness.timing import stepped
from benchmarks.harness.workload import TYPES, Row, Step

ROUNDS = 3


def scaling(members: list[str], tokens: int) -> dict[str, dict[str, Row]]:
    """Wall-clock seconds of a forward and a backward pass on two threads, and their ratio to those on one.

    0.5 is ideal. PyTorch's attention without a bias is the first row.
    """
    found: dict[str, dict[str, Row]] = {}
    for name, type in TYPES.items():
        steps = {member: stepped(contender(member)(Size(tokens), type, True)) for member in (BASE, *members)}
        found[name] = {member: _row(step) for member, step in steps.items()}
    return found


def _row(step: Step) -> Row:
    step()
    spent = [(_seconds(step, 1), _seconds(step, 2)) for _ in range(ROUNDS)]
    ratio = statistics.median(two / one for one, two in spent)
    return {"seconds": statistics.median(two for _, two in spent), "ratio": ratio}


def _seconds(step: Step, threads: int) -> float:
    torch.set_num_threads(threads)
    try:
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin
    finally:
        torch.set_num_threads(1)
