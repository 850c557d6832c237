"""Attention with position schemes on a GPU: seconds and bytes beside PyTorch's unbiased causal attention there.

Contenders in turns in one process, the median of the ratios of each round; caches are cold. Before anything is timed,
each of ours is compared with the reference formula (`ordinate.attention._proof_case`), and left out if it differs.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.attention.contenders import (
    BASE,
    Prepare,
    Size,
    copied,
    frozen,
    make,
    materialised,
    ours,
    plain,
    rotated,
    split,
)
from benchmarks.harness.device import Device
from benchmarks.harness.printing import show_ratios
from benchmarks.harness.saving import save_on
from benchmarks.harness.timing import in_turns, stepped
from benchmarks.harness.workload import HEAD_WIDTH, Row, Step
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention._proof_case import disagreement

TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
OTHERS: Mapping[str, Prepare] = {
    "sdpa, bias as a tensor, frozen": frozen,
    "sdpa, bias as a tensor, learned": materialised,
}
# beyond so many tokens a bias as a tensor would take tens of gigabytes
MOST_MATERIALISED = 8192
LEARNED = ("t5@", "t5@triton", "toeplitz@", "shaw@", "shaw@triton", "transformer_xl@", "deberta@", "fire@")
# ratios to the unbiased baseline that are aimed at in bfloat16
GOALS = {"t5@": 1.15, "shaw@": 1.15, "toeplitz@": 1.6, "transformer_xl@": 2.2, "deberta@": 2.2, "alibi@": 0.8}


@dataclass(frozen=True)
class Group:
    """Contenders that are timed in turns.

    Args:
        title: name of the measurement in the results.
        size: problem size.
        members: ours, as `scheme@backend`.
        learn: whether to run the backward pass.
        others: whether PyTorch's attention with a bias as a tensor is timed, too.
        types: names of the dtypes; float32, in which hardly anybody trains on a GPU, takes most of a minute where
            texts are long.
        base: the baseline.
    """

    title: str
    size: Size
    members: tuple[str, ...]
    learn: bool = True
    others: bool = True
    types: tuple[str, ...] = ("bfloat16",)
    base: tuple[str, Prepare] = (BASE, plain)


def groups(quick: bool) -> list[Group]:
    """Return all measurements, the most telling first."""
    usual, long, batch, heads = (256, 512, 1, 2) if quick else (8192, 32768, 4, 16)
    whole, alibi = Size(usual, batch=batch, heads=heads), ("alibi@",)
    return [
        Group(f"training, N {usual}", whole, (*LEARNED, *alibi)),
        Group(f"forward, N {usual}", whole, ("t5@", *alibi), learn=False),
        Group(f"ALiBi forward, N {long}", Size(long, heads=heads), alibi, learn=False),
        Group(
            f"training, N {usual // 4}",
            Size(usual // 4, batch=4 * batch, heads=heads),
            (*LEARNED[:5], *alibi),
            types=tuple(TYPES),
        ),
        Group(
            f"one query, {usual} cached",
            Size(1, batch=batch, heads=heads, cached=usual - 1),
            ("none@", "alibi@", "t5@"),
            learn=False,
            others=False,
            types=tuple(TYPES),
        ),
        Group(
            f"rotation of q and k against a copy, N {usual}",
            whole,
            ("rope@", "rope, interleaved@"),
            learn=False,
            others=False,
            types=tuple(TYPES),
            base=("copy", copied),
        ),
        # the last: it takes most of a minute to compile
        Group(f"FlexAttention, training, N {usual}", whole, ("t5@flex", "alibi@flex"), others=False),
    ]


def measured(group: Group, device: Device, rounds: int) -> dict[str, dict[str, Row]]:
    """Time a group in each type, with the bytes of each contender."""
    found: dict[str, dict[str, Row]] = {}
    for name in group.types:
        type = TYPES[name]
        steps = {group.base[0]: group.base[1], **_members(group)}
        made = {}
        for who, prepare in steps.items():
            try:
                reason = _difference(who, group, type, device) if who in group.members else None
                if reason is not None:
                    raise ValueError(f"{who}: {reason}")
                made[who] = device.prepared(partial(_stepped, prepare, group, type))
                # compilation and proofs are not timed
                device.seconds(made[who])
            except (RuntimeError, ValueError) as error:
                made.pop(who, None)
                print(f"not timed, {group.title}: {str(error).splitlines()[0]}")
        rows = in_turns(made, rounds=rounds, base=group.base[0], clock=device.seconds)
        for who, row in rows.items():
            held = device.peak_bytes(made[who])
            row |= {} if held is None else {"bytes": held}
            row |= {"goal": GOALS[who]} if who in GOALS and group.learn and name == "bfloat16" else {}
        found[name] = rows
    return found


def _members(group: Group) -> dict[str, Prepare]:
    named = [member for member in group.members if split(member)[1] in (None, *BACKENDS)]
    found = {member: rotated(split(member)[0]) if member.startswith("rope") else ours(member) for member in named}
    with_bias = group.others and group.size.tokens <= MOST_MATERIALISED
    return found | (dict(OTHERS) if with_bias else {})


def _stepped(prepare: Prepare, group: Group, type: torch.dtype) -> Step:
    return stepped(prepare(group.size, type, group.learn))


def _difference(member: str, group: Group, type: torch.dtype, device: Device) -> str | None:
    """Return how one of ours differs from the reference formula in a small case of its form; None: it does not."""
    name, backend = split(member)
    with torch.device(device.name):
        at = make(name, group.size.heads).requires_grad_(group.learn).at(group.size.where)
        q, k, v = group.size.draw(type, learn=group.learn)
        encoded = at.encode_all(q, k)
        call = AttentionCall(encoded.q, encoded.k, v, at, HEAD_WIDTH**-0.5, 0.0, ScoreOptions())
        if backend is None:
            # the first that supports it: to ask the others too would compile kernels that are not timed
            backend = next(name for name in BACKENDS if BACKENDS[name].unsupported_reason(call) is None)
        reason = BACKENDS[backend].unsupported_reason(call)
        return reason or disagreement(BACKENDS[backend], call, gradients=group.learn)


def main(keep: bool, quick: bool, device: Device) -> None:
    """Run all measurements, and print them beside their goals."""
    began = time.perf_counter()
    results: dict[str, Any] = {}
    for group in groups(quick):
        results[group.title] = measured(group, device, 2 if quick else 10)
        show_ratios(group.title, results[group.title])
        if keep:
            # after each group: a machine that is lent for a while may be gone before the last
            path = save_on(device, "attention", results)
    print(f"\n{time.perf_counter() - began:.0f} s on {device.title}; *: goal missed")
    if keep:
        print(path)
