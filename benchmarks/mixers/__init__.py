"""Every mixer of the catalog compared with softmax attention: time and memory over the sequence length.

Two things are timed. First, the mixing alone, with random tensors in place of the outputs of its projections, as a
ratio to PyTorch's causal attention on given queries, keys and values: the projections to queries, keys, values and
gates and the output projection are left out on both sides; everything else counts, such as feature maps, filters,
token shifts, RWKV's low-rank products and norms. Second, the whole mixer, as a ratio to our softmax mixer computed by
PyTorch's SDPA, together with mixers of public packages.

Measured are the forward pass and training (forward and backward), in float32, in CPU time of one thread, contenders
in turns, the median over rounds; the longest sequences one contender after another. Mixers with a goal run at batch
8, all at batch 1. The process keeps freed memory (see `benchmarks.harness.memory.keep_freed`). A mixer that fails a
contract check is not timed, nor is one at a length at which a pass would take too long.

With `--save`, each length of a case is stored as soon as it is measured, so that an interrupted run can resume.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch

from benchmarks.harness.device import Device
from benchmarks.harness.memory import keep_freed
from benchmarks.harness.printing import Table, show_memory, show_times
from benchmarks.harness.saving import Unfinished, save, save_on
from benchmarks.harness.timing import stepped
from benchmarks.mixers import memory
from benchmarks.mixers.cases import GOALS, Case
from benchmarks.mixers.contenders import beside
from benchmarks.mixers.members import BASE, SOFTMAX, Size, kind, mixing, names, plain, softmax, whole

LENGTHS, SHORT = (1024, 4096, 16384), (256, 1024)
# mixers of a rehearsal of another device
QUICK_MEMBERS = ("linear", "window")
BATCH = 8


def cases(members: list[str], quick: bool) -> Iterator[Case]:
    """Yield all measurements: mixers with goals in batches, then all with batch 1."""
    for batch in (BATCH, 1):
        chosen = [name for name in members if batch == 1 or name in GOALS]
        others = {name: contender.prepare for name, contender in beside(chosen).items()}
        alone = {name: mixing(name) for name in chosen}
        full = {name: whole(name) for name in chosen} | others
        lengths = SHORT if quick else LENGTHS
        for learn in (False, True):
            yield Case("mixing alone", (BASE, plain), alone, batch, learn, lengths, goals=batch > 1)
            # long sequences at batch 1 only: some packages need gigabytes for each
            yield Case("whole mixer", (SOFTMAX, softmax), full, batch, learn, lengths if batch == 1 else lengths[:1])


def curve(members: list[str], timed: Table) -> list[dict[str, Any]]:
    """Seconds and bytes of training of each whole mixer, at the lengths at which it was timed."""
    points = []
    for member in members:
        lengths = [int(tokens) for tokens, rows in timed.items() if member in rows]
        for tokens, bytes in zip(lengths, memory.peaks(member, lengths), strict=True):
            points.append({"who": member, "tokens": tokens, "bytes": bytes, **timed[str(tokens)][member]})
    return points


def main(keep: bool, quick: bool = False, device: str | None = None) -> None:
    """Run all measurements, and print them beside their goals."""
    if device is not None:
        main_on(Device(device), keep, quick)
        return
    torch.set_num_threads(1)
    began = time.perf_counter()
    keep_freed()
    unfinished = Unfinished("mixers") if keep and not quick else None
    results: dict[str, Any] = {}
    members = names()
    # one table for causal mixers, one for mixers without a causal form
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
    show_memory("forward and backward, MB above the inputs", results["curve"])
    print(f"\n{time.perf_counter() - began:.0f} s; *: goal missed")
    if unfinished:
        print(save("mixers", results))
        unfinished.forget()


def main_on(device: Device, keep: bool, quick: bool) -> None:
    """Run all measurements on a device, without goals, which are for a CPU; of the memory, that of training."""
    results: dict[str, Any] = {}
    members = list(QUICK_MEMBERS) if quick else names()
    for case in cases(members, quick):
        on = replace(case, device=device, goals=False, lengths=case.lengths[:1] if quick else case.lengths)
        table: Table = {}
        for tokens in on.lengths:
            table[str(tokens)] = on.rows(tokens, table, quick)
            results[on.title] = table
            if keep:
                # after each length: a machine that is lent for a while may be gone before the last
                path = save_on(device, "mixers", results)
        show_times(on.title, table, without=())
    results["bytes of training"] = {
        name: device.peak_bytes(device.prepared(lambda name=name: stepped(whole(name)(Size(SHORT[-1]), True))))
        for name in members
    }
    if keep:
        path = save_on(device, "mixers", results)
        print(path)


def show_both(title: str, table: Table, apart: Collection[str]) -> None:
    """Print the causal mixers, and those without a causal form."""
    show_times(title, table, without=set(apart))
    others = set(table[min(table)]) - set(apart) - {BASE, SOFTMAX}
    show_times("the same, no causal form", table, without=others)
