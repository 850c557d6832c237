"""Time in turns, and whether a member's tests are green."""

import statistics
import time
from collections.abc import Callable
from functools import cache

import torch

from benchmarks.attention.contenders import BASE, Work, make
from ordinate import Geometry, explain
from ordinate.testing.route import assert_agrees, draw

# a step that takes longer joins one round only; shorter ones are repeated until the clock can see them [seconds]
LONG, SHORT = 1.5, 0.02
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Step = Callable[[], object]
Row = dict[str, float]


def stepped(work: Work) -> Step:
    """One forward pass, and one back where there is something to learn."""
    forward, leaves = work
    if not leaves or not leaves[0].requires_grad:
        return torch.no_grad()(forward)

    def step() -> object:
        out = forward()
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    return step


def in_turns(steps: dict[str, Step], *, rounds: int, base: str = BASE) -> dict[str, Row]:
    """Median seconds of each step, and the median ratio to the base of the same round, in CPU time of one thread."""
    once = {name: _seconds(step, 1) for name, step in steps.items()}
    # a step that takes long needs no warming up: its first run counts
    spent = {name: [(seconds, seconds / once[base])] if seconds > LONG else [] for name, seconds in once.items()}
    for turn in range(rounds):
        usual = 0.0
        for name in sorted(steps, key=lambda name: name != base):
            if once[name] <= LONG or turn == 0 or name == base:
                seconds = _seconds(steps[name], max(1, min(100, round(SHORT / max(once[name], 1e-5)))))
                usual = seconds if name == base else usual
                spent[name].append((seconds, seconds / usual))
    return {
        name: {"seconds": statistics.median(s for s, _ in found), "ratio": statistics.median(r for _, r in found)}
        for name, found in spent.items()
    }


def _seconds(step: Step, times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - begin) / times


@cache
def is_green(scheme: str, route: str | None) -> bool:
    """Whether a route agrees with the reference, forward and backward, on a case that is large enough for it."""
    marks = make(scheme, 4)
    for tokens in (5, 300, 1100):
        q, k, v = draw(Geometry.causal(tokens), batch=1, width=64, type=torch.float32)
        try:
            explain(q, k, v, marks.at(Geometry.causal(tokens)), route=route)
        except ValueError:
            # too few tokens for this route
            continue
        try:
            assert_agrees(route, marks, Geometry.causal(tokens), q, k, v)
        except AssertionError as error:
            print(f"not timed: {scheme} by {route}: {error}")
            return False
    return True
