"""Time in turns, and whether a member's tests are green."""

import statistics
import time
from collections.abc import Callable
from functools import cache

import torch

from benchmarks.attention.contenders import BASE, HEAD_WIDTH, Work, make
from ordinate import Geometry, explain
from ordinate.testing.route import assert_agrees, draw

# a step that takes longer is run once, a base that takes much longer too; shorter ones are repeated until the clock
# can see them [seconds]
LONG, MUCH_LONGER, SHORT = 1.5, 15.0, 0.02
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
        # some parameters serve another form only
        return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    return step


def in_turns(steps: dict[str, Step], *, rounds: int, base: str = BASE) -> dict[str, Row]:
    """Median seconds of each step, and the median ratio to the base of the same round, in CPU time of one thread."""
    order = [base, *(name for name in steps if name != base)]
    once = {name: _seconds(steps[name], 1) for name in order}
    usual = once[base] if once[base] > LONG else _seconds(steps[base], 1)
    # what takes long needs no warming up, and is run once
    spent = {name: [(seconds, seconds / usual)] if seconds > LONG else [] for name, seconds in once.items()}
    for _ in range(rounds):
        for name in order:
            if once[name] <= LONG or (name == base and usual <= MUCH_LONGER):
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
    """Whether a route agrees with the reference, forward and backward, on the first case large enough for it."""
    marks = make(scheme, 4)
    for tokens in (300, 1100):
        where = Geometry.causal(tokens)
        q, k, v = draw(where, batch=1, width=HEAD_WIDTH, type=torch.float32)
        try:
            explain(q, k, v, marks.at(where), route=route)
            assert_agrees(route, marks, where, q, k, v)
            return True
        except ValueError:
            # too few tokens for this route
            continue
        except AssertionError as error:
            print(f"not timed: {scheme} by {route}: {error}")
            return False
    return False
