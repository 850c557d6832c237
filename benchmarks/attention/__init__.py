"""Attention with position schemes, compared with PyTorch's attention without one and with other packages.

Every figure is a ratio to `scaled_dot_product_attention(is_causal=True)` without a bias in the same process, in CPU
time of one thread, contenders in turns, the median over rounds. A backend that disagrees with the reference is not
timed. The process keeps freed memory (see `benchmarks.harness.memory.keep_freed`): otherwise the cost of page faults
depends on which contender ran before.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.attention import on_device
from benchmarks.attention.accuracy import accuracy
from benchmarks.attention.contenders import BASE, PEERS, Prepare, Size, copied, flex, ours, plain, rotated, split
from benchmarks.attention.correctness import is_green
from benchmarks.attention.memory import contender, peak
from benchmarks.attention.threads import scaling
from benchmarks.harness.device import Device
from benchmarks.harness.memory import keep_freed
from benchmarks.harness.printing import show_errors, show_ratios
from benchmarks.harness.saving import save
from benchmarks.harness.timing import in_turns, stepped
from benchmarks.harness.workload import TYPES, Row
from ordinate.attention._attend import BACKENDS
from ordinate.ops.matmul import has_512_bit_units, onednn_is_faster

CURVE = ("t5@", BASE, "sdpa, bias as a tensor, learned", "x-transformers, relative bias", "transformers, T5")
Goals = dict[str, tuple[float | None, ...]]


@dataclass(frozen=True)
class Group:
    """Contenders that are timed in turns.

    Args:
        title: name of the measurement in the results.
        size: problem size.
        goals: target ratio of each of our contenders, `scheme@backend`, in float32 and in bfloat16; () for none.
        learn: whether to run the backward pass.
        peers: contenders of other packages.
        rounds: number of rounds.
        base: baseline of the ratios.
    """

    title: str
    size: Size
    goals: Goals
    learn: bool = True
    peers: tuple[str, ...] = ()
    rounds: int = 5
    base: tuple[str, Prepare] = (BASE, plain)


@dataclass(frozen=True)
class Targets:
    """Goals on one kind of processor: ratios to PyTorch's attention, in float32 and in bfloat16.

    Args:
        table: training with a learned bias by offset, without a compiler.
        native: the same in C++.
        small: the same in C++ for batches of short texts.
        shaw: training with Shaw's vectors.
        content: training with the other biases that depend on the content, and FIRE.
        alibi: forward pass with ALiBi, without a compiler.
        alibi_native: the same in C++.
        rotation: rotation of queries and keys, against a copy of both.
        memory: memory of training, in C++.
    """

    table: tuple[float, float]
    native: tuple[float, float]
    small: tuple[float, float]
    shaw: tuple[float, float]
    content: tuple[float, float]
    alibi: tuple[float, float]
    alibi_native: tuple[float, float]
    rotation: tuple[float, float]
    memory: tuple[float, float] = (1.1, 1.1)


# by the instructions that PyTorch uses. With AVX2 its own attention reaches four fifths of the speed of a matrix
# product in float32, so there is less to gain, and is slow in bfloat16
TARGETS = {
    "AVX512": Targets(
        table=(0.60, 0.85),
        native=(0.45, 0.35),
        small=(0.50, 0.35),
        shaw=(2.5, 2.5),
        content=(2.5, 2.5),
        alibi=(0.20, 0.20),
        alibi_native=(0.18, 0.10),
        rotation=(1.3, 2.0),
    ),
    "AVX2": Targets(
        table=(1.1, 0.5),
        native=(0.85, 0.5),
        small=(0.85, 0.5),
        shaw=(1.9, 1.9),
        content=(2.2, 2.2),
        alibi=(0.30, 0.30),
        alibi_native=(0.20, 0.20),
        rotation=(1.1, 2.0),
    ),
}
OTHERS = ("fire@", "shaw@", "transformer_xl@", "deberta@", "cope@")


def instructions() -> str:
    """Return the kind of processor that the goals depend on: AVX512 or AVX2."""
    found = torch.backends.cpu.get_cpu_capability()
    return found if found in TARGETS else "AVX2"


def suffix() -> str:
    """Return what the name of results ends with, by the kind of processor, so that no kind overwrites another's."""
    intel = "" if onednn_is_faster() else "-intel"
    if instructions() == "AVX2":
        return f"{intel}-set-to-avx2" if torch.cpu.get_capabilities().get("avx512_f") else f"{intel}-avx2"
    return intel or ("" if has_512_bit_units() else "-zen4")


def groups(quick: bool, goals: Targets) -> list[Group]:
    """Return all measurements, with the goals on this kind of processor."""
    usual, long, rounds = (512, 1024, 2) if quick else (4096, 16384, 5)
    learned: Goals = {"t5@offset_bias": goals.table, "toeplitz@offset_bias": goals.table, "t5@native": goals.native}
    others: Goals = {member: goals.shaw if member == "shaw@" else goals.content for member in OTHERS}
    small: Goals = {"t5@native": goals.small, "t5@": ()}
    return [
        Group(f"training, N {usual}", Size(usual), learned | others, peers=tuple(PEERS), rounds=min(rounds, 3)),
        Group(
            f"forward, N {usual}",
            Size(usual),
            {"t5@offset_bias": (), "t5@native": (), "alibi@": ()},
            learn=False,
            peers=("sdpa, bias as a tensor, frozen", *(() if quick else ("FlexAttention, T5 table",))),
            rounds=rounds,
        ),
        Group(
            f"ALiBi forward, N {long}",
            Size(long),
            {"alibi@offset_bias": goals.alibi, "alibi@native": goals.alibi_native},
            learn=False,
            rounds=2,
        ),
        Group("training, B 16 H 6 N 256", Size(256, batch=16, heads=6), small, rounds=rounds),
        Group("training, B 8 H 8 N 512", Size(512, batch=8), small, rounds=rounds),
        Group(
            f"rotation of q and k against a copy, N {usual}",
            Size(usual),
            {"rope@": goals.rotation, "rope, interleaved@": goals.rotation},
            learn=False,
            rounds=3 * rounds,
            base=("copy", copied),
        ),
        Group(
            f"one query, {usual} cached",
            Size(1, cached=usual - 1),
            {"none@": (), "alibi@": (None, 0.25), "t5@": (None, 0.25)},
            learn=False,
            rounds=3 * rounds,
        ),
    ]


def measured(group: Group) -> dict[str, dict[str, Row]]:
    """Time a group in each type."""
    found: dict[str, dict[str, Row]] = {}
    for column, (type_name, type) in enumerate(TYPES.items()):
        name, prepare = group.base
        members: dict[str, Prepare] = {name: prepare} | {member: _prepare(member) for member in timed(group.goals)}
        members |= {peer: flex if peer.startswith("Flex") else PEERS[peer] for peer in group.peers}
        steps = {member: stepped(prepare(group.size, type, group.learn)) for member, prepare in members.items()}
        rows = in_turns(steps, rounds=group.rounds, base=name)
        for member, goals in group.goals.items():
            if member in rows and goals and goals[column] is not None:
                rows[member]["goal"] = goals[column]
        found[type_name] = rows
    return found


def timed(members: Iterable[str]) -> list[str]:
    """Select those of our contenders whose backend exists here and agrees with the reference."""
    return [member for member in members if split(member)[1] in (None, *BACKENDS) and is_green(*split(member))]


def _prepare(member: str) -> Prepare:
    scheme, _ = split(member)
    return rotated(scheme) if scheme.startswith("rope") else ours(member)


def memory(quick: bool, native: tuple[float, float]) -> dict[str, dict[str, Row]]:
    """Peak memory of training with T5's bias above the inputs, and its ratio to PyTorch's attention without bias."""
    tokens = 1024 if quick else 16384
    goals: dict[str, tuple[float, float]] = {"t5@offset_bias": (3.0, 6.0), "t5@native": native}
    found: dict[str, dict[str, Row]] = {}
    for column, name in enumerate(TYPES):
        held = {member: peak(member, tokens, name) for member in (BASE, *timed(goals))}
        found[name] = {member: {"bytes": bytes, "ratio": bytes / held[BASE]} for member, bytes in held.items()}
        for member in timed(goals):
            found[name][member]["goal"] = goals[member][column]
    return found


def curve(quick: bool) -> list[dict[str, Any]]:
    """Seconds and bytes of training in float32 over the number of tokens, of ours and of other packages."""
    points: list[dict[str, Any]] = []
    for tokens in (512, 1024) if quick else (1024, 4096, 16384):
        # contenders that materialise queries x keys run out of memory beyond this
        names = CURVE if tokens <= 4096 else CURVE[:2]
        prepared = {name: contender(name)(Size(tokens), torch.float32, True) for name in names}
        rows = in_turns({name: stepped(work) for name, work in prepared.items()}, rounds=1, base=BASE)
        for name in names:
            points.append({"tokens": tokens, "who": name, **rows[name], "bytes": peak(name, tokens, "float32")})
    return points


def main(keep: bool, quick: bool = False, device: str | None = None) -> None:
    """Run all measurements, and print them beside their goals."""
    if device is not None:
        on_device.main(keep, quick, Device(device))
        return
    torch.set_num_threads(1)
    began = time.perf_counter()
    keep_freed()
    results: dict[str, Any] = {}
    kind = instructions()
    print(f"goals for processors with {kind}")
    for group in groups(quick, TARGETS[kind]):
        results[group.title] = measured(group)
        show_ratios(group.title, results[group.title])
    members = timed(["t5@offset_bias", "t5@native", "alibi@offset_bias", "alibi@native", *OTHERS])
    results["memory"] = memory(quick, TARGETS[kind].memory)
    show_ratios("memory of training above inputs", results["memory"])
    results["threads"] = scaling(timed(["t5@offset_bias", "t5@native"]), 512 if quick else 4096)
    show_ratios("training on two threads, seconds by those on one", results["threads"])
    results["accuracy"] = accuracy(members, 256 if quick else 1024, 512 if quick else 16384)
    show_errors(results["accuracy"])
    results["curve"] = curve(quick)
    print(f"\n{time.perf_counter() - began:.0f} s; *: goal missed, or error larger than PyTorch's")
    if keep:
        print(save(f"attention{suffix()}", results))
