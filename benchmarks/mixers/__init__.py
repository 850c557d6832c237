"""Every mixer of the catalog beside softmax attention: time and memory over the length of a text.

Two things are timed. The mixing alone, on what its projections would have given it, as a ratio to PyTorch's causal
attention on given queries, keys and values: products with the matrices that make queries, keys, values and gates of a
token, and the last one, are left out on both sides; whatever else a layer does counts, such as features, filters,
shifts, RWKV's products of low rank, norms. And the whole mixer, as a ratio to our softmax mixer left to PyTorch;
mixers of public packages stand beside it.

Forward alone, and forward and backward, in float32, in CPU time of one thread, members in turns, the median over
rounds; the longest texts one member after another. Members with a goal read eight texts, all members one. Memory that
was freed is kept by the process (see `benchmarks.attention.memory.keep_freed`). A member that breaks a promise of the
contract is not timed, nor is one at a length at which a pass would take too long.

With `--save`, each length of a case is kept as soon as it is measured, and a run that was interrupted goes on.
"""

import time
from collections.abc import Collection, Iterator
from typing import Any

import torch

from benchmarks.attention.memory import keep_freed
from benchmarks.mixers import memory
from benchmarks.mixers.cases import GOALS, Case, Table
from benchmarks.mixers.contenders import beside
from benchmarks.mixers.members import BASE, SOFTMAX, kind, mixing, names, plain, softmax, whole
from benchmarks.mixers.printing import show, show_memory
from benchmarks.saving import Unfinished, save

LENGTHS, SHORT = (1024, 4096, 16384), (256, 1024)
BATCH = 8


def cases(members: list[str], quick: bool) -> Iterator[Case]:
    """Everything that is timed: those with goals on several texts, then all on one."""
    for batch in (BATCH, 1):
        chosen = [name for name in members if batch == 1 or name in GOALS]
        others = {name: contender.prepare for name, contender in beside(chosen).items()}
        alone = {name: mixing(name) for name in chosen}
        full = {name: whole(name) for name in chosen} | others
        lengths = SHORT if quick else LENGTHS
        for learn in (False, True):
            yield Case("mixing alone", (BASE, plain), alone, batch, learn, lengths, goals=batch > 1)
            # long ones one by one: some packages hold gigabytes for each
            yield Case("whole mixer", (SOFTMAX, softmax), full, batch, learn, lengths if batch == 1 else lengths[:1])


def curve(members: list[str], timed: Table) -> list[dict[str, Any]]:
    """Seconds and bytes of a forward and a backward pass of each whole mixer, wherever it was timed."""
    points = []
    for member in members:
        lengths = [int(tokens) for tokens, rows in timed.items() if member in rows]
        for tokens, bytes in zip(lengths, memory.peaks(member, lengths), strict=True):
            points.append({"who": member, "tokens": tokens, "bytes": bytes, **timed[str(tokens)][member]})
    return points


def main(keep: bool, quick: bool = False) -> None:
    """Measure everything, and print it beside the goals."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    keep_freed()
    unfinished = Unfinished("mixers") if keep and not quick else None
    results: dict[str, Any] = {}
    members = names()
    # one table for what hides later tokens, one for what cannot
    open_members = [name for name in members if not kind(name).causal]
    apart = {*open_members, *(name for name, other in beside(members).items() if other.ours in open_members)}
    for case in cases(members, quick):
        table: Table = {}
        for tokens in case.lengths:
            found = unfinished.get(case.title, tokens) if unfinished else None
            table[str(tokens)] = case.rows(tokens, table, quick) if found is None else found
            if unfinished:
                unfinished.put(case.title, tokens, rows=table[str(tokens)])
        results[case.title] = table
        show_both(case.title, table, apart)
    results["curve"] = curve([SOFTMAX, *members], results["whole mixer, forward and backward, batch 1"])
    show_memory(results["curve"])
    print(f"\n{time.perf_counter() - began:.0f} s; * the goal is not reached")
    if unfinished:
        print(save("mixers", results))
        unfinished.forget()


def show_both(title: str, table: Table, apart: Collection[str]) -> None:
    """Print those that hide later tokens, and those that cannot."""
    show(title, table, without=set(apart))
    others = set(table[min(table)]) - set(apart) - {BASE, SOFTMAX}
    show("the same, no causal form", table, without=others)
