"""Time contenders in turns, in CPU time, or by the clock of another device."""

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.harness.workload import Row, Step, Work

# a step that takes longer than LONG is run once, and a baseline that takes longer than MUCH_LONGER too; shorter ones
# are repeated until SHORT has passed, so that the resolution of the clock does not matter [seconds]
LONG, MUCH_LONGER, SHORT = 1.5, 15.0, 0.02


def stepped(work: Work) -> Step:
    """Return a function that runs the forward pass and, if the inputs require gradients, the backward pass."""
    forward, leaves = work
    if not leaves or not leaves[0].requires_grad:
        return torch.no_grad()(forward)

    def step() -> object:
        out = forward()
        # a scheme can have parameters that this form does not use
        return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    return step


def in_turns(
    steps: dict[str, Step], *, rounds: int, base: str, clock: Callable[[Step, int], float] | None = None
) -> dict[str, Row]:
    """Median seconds of each step, and its median ratio to the baseline of the same round.

    Args:
        steps: the contenders by name.
        rounds: number of rounds.
        base: name of the baseline.
        clock: returns the mean seconds of so many calls; None: CPU time.
    """
    clock = cpu_seconds if clock is None else clock
    order = [base, *(name for name in steps if name != base)]
    first = {name: clock(steps[name], 1) for name in order}
    # a first call may load or compile: by its time a short step would be run once a round, with cold caches
    once = {name: seconds if seconds > LONG else clock(steps[name], 1) for name, seconds in first.items()}
    usual = once[base]
    # long steps need no warm-up, and are run once
    spent = {name: [(seconds, seconds / usual)] if seconds > LONG else [] for name, seconds in once.items()}
    for _ in range(rounds):
        for name in order:
            if once[name] <= LONG or (name == base and usual <= MUCH_LONGER):
                seconds = clock(steps[name], max(1, min(100, round(SHORT / max(once[name], 1e-5)))))
                usual = seconds if name == base else usual
                spent[name].append((seconds, seconds / usual))
    return {
        name: {"seconds": statistics.median(s for s, _ in found), "ratio": statistics.median(r for _, r in found)}
        for name, found in spent.items()
    }


def cpu_seconds(step: Step, times: int = 1) -> float:
    """Return the mean CPU time of a call."""
    begin = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - begin) / times
