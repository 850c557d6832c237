"""Every mixer of the catalog beside softmax attention: time and memory over the length of a text.

Two things are timed. The mixing alone, on what its projections would have given it, as a ratio to PyTorch's causal
attention on given queries, keys and values. And the whole mixer, as a ratio to our softmax mixer left to PyTorch;
mixers of public packages stand beside it. Forward alone, and forward and backward; in float32, one text, CPU time of
one thread, members in turns, the median over rounds. A member that breaks a promise of the contract is not timed, nor
is one at a length at which a pass would take too long.
"""

import time
from typing import Any

import torch

from benchmarks.attention.measuring import Row, Step, in_turns, stepped
from benchmarks.mixers.contenders import beside
from benchmarks.mixers.members import BASE, SOFTMAX, Prepare, Size, kind, mixing, names, plain, softmax, whole
from benchmarks.mixers.memory import peaks
from benchmarks.mixers.printing import show, show_memory
from benchmarks.saving import save

LENGTHS, SHORT = (1024, 4096, 16384), (256, 1024)
# a pass that is expected to take longer is not timed [seconds]
LONGEST = 3.0
# the ratio of the mixing to reach at each length
GOALS: dict[str, tuple[float, float, float]] = {
    "s4d": (0.7, 0.3, 0.2),
    "h3": (0.7, 0.3, 0.2),
    "rwkv4": (0.4, 0.2, 0.1),
    "rwkv6": (0.5, 0.25, 0.15),
    "rwkv7": (0.5, 0.25, 0.15),
    "linear": (0.5, 0.25, 0.15),
    "performer": (0.7, 0.35, 0.2),
    "window": (0.9, 0.35, 0.15),
    "linformer": (0.8, 0.3, 0.12),
}
# whose goals are for the forward pass
FORWARD_ONLY = ("linformer",)
Table = dict[str, dict[str, Row]]
"""The rows of each length."""


def measured(base: tuple[str, Prepare], members: dict[str, Prepare], learn: bool, quick: bool) -> Table:
    """The rows of each length, shortest first; what would take too long is left out from there on."""
    found: Table = {}
    for tokens in SHORT if quick else LENGTHS:
        name, prepare = base
        expected = {member: _expected(found, member) for member in members}
        steps: dict[str, Step] = {name: stepped(prepare(Size(tokens), learn))}
        for member, build in members.items():
            if expected[member] < LONGEST:
                steps[member] = stepped(build(Size(tokens), learn))
        found[str(tokens)] = in_turns(steps, rounds=1 if tokens > 4096 else 2 if quick else 3, base=name)
    return found


def _expected(found: Table, member: str) -> float:
    """Seconds of the next length, as the last two let expect, or twice as many times as many tokens."""
    if not found:
        return 0.0
    times = [rows[member]["seconds"] for rows in found.values() if member in rows]
    if len(times) < len(found):
        return float("inf")
    return times[-1] * (times[-1] / times[-2] if len(times) > 1 else 8)


def with_goals(table: Table, learn: bool) -> Table:
    """The same, with the goal in each row that has one."""
    for place, rows in enumerate(table[str(tokens)] for tokens in LENGTHS if str(tokens) in table):
        for member, goals in GOALS.items():
            if member in rows and len(table) == len(LENGTHS) and not (learn and member in FORWARD_ONLY):
                rows[member]["goal"] = goals[place]
    return table


def memory(members: list[str], timed: Table) -> list[dict[str, Any]]:
    """Seconds and bytes of a forward and a backward pass of each whole mixer, wherever it was timed."""
    points = []
    for member in members:
        lengths = [int(tokens) for tokens, rows in timed.items() if member in rows]
        for tokens, bytes in zip(lengths, peaks(member, lengths), strict=True):
            points.append({"who": member, "tokens": tokens, "bytes": bytes, **timed[str(tokens)][member]})
    return points


def main(keep: bool, quick: bool = False) -> None:
    """Measure everything, and print it beside the goals."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    results: dict[str, Any] = {}
    members = names()
    others = beside(members)
    # one table for what hides later tokens, one for what cannot
    open_members = [name for name in members if not kind(name).causal]
    apart = {*open_members, *(name for name, contender in others.items() if contender.ours in open_members)}
    for learn, passes in ((False, "forward"), (True, "forward and backward")):
        alone = measured((BASE, plain), {name: mixing(name) for name in members}, learn, quick)
        together = {name: whole(name) for name in members}
        together |= {name: contender.prepare for name, contender in others.items()}
        full = measured((SOFTMAX, softmax), together, learn, quick)
        for what, table in (("mixing alone", with_goals(alone, learn)), ("whole mixer", full)):
            results[f"{what}, {passes}"] = table
            show(f"{what}, {passes}", table, without=apart)
            show("the same, no causal form", table, without=set(table[min(table)]) - apart - {BASE, SOFTMAX})
    points = memory([SOFTMAX, *members], results["whole mixer, forward and backward"])
    results["curve"] = points
    show_memory(points)
    print(f"\n{time.perf_counter() - began:.0f} s; * the goal is not reached")
    if keep and not quick:
        print(save("mixers", results))
