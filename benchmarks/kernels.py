"""Time that a GPU computes with each scheme, by kernel: PyTorch's profiler, without waits for the host.

`./dev bench kernels --device cuda`. Beside `./dev bench attention --device cuda`, which measures what passes until a
step is done, it tells whether kernels or the host that launches them limit the speed. Times are those of one step in
bfloat16, the mean of three steps: of training, forward and backward, of the rotation alone, and of decoding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.attention.contenders import BASE, Prepare, Size, copied, ours, plain, rotated
from benchmarks.harness.device import Device
from benchmarks.harness.saving import save_on
from benchmarks.harness.timing import stepped
from benchmarks.harness.workload import Step

STEPS = 3
# scheme@backend; those of the backends by name, to compare where both support the call
MEMBERS = (
    "t5@near_far",
    "t5@triton",
    "shaw@near_far",
    "shaw@triton",
    "alibi@triton",
    "toeplitz@triton",
    "fire@triton",
    "deberta@triton",
    "transformer_xl@triton",
)
# tokens and sequences of each measurement, so that all have as many tokens
LENGTHS = ((8192, 4), (4096, 8), (2048, 16))
HEADS = 16
# kernels of a row that are printed
MOST = 5


def kernels(step: Step) -> dict[str, float]:
    """Return the milliseconds of each kernel of a step, the longest first."""
    # the first compiles, the second allocates
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    times = {event.key: event.self_device_time_total / STEPS / 1e3 for event in found.key_averages()}
    return dict(sorted(((name, time) for name, time in times.items() if time > 0), key=lambda row: -row[1]))


class Group(NamedTuple):
    """Steps that are compared.

    Args:
        title: name of the measurement in the results.
        size: problem size.
        members: the baseline, then the others.
        learn: whether to run the backward pass.
    """

    title: str
    size: Size
    members: dict[str, Prepare]
    learn: bool


def groups(quick: bool) -> list[Group]:
    """Return all measurements; of a rehearsal only the first."""
    trained = {BASE: plain, **{member: ours(member) for member in MEMBERS}}
    longest, batch = LENGTHS[0]
    found = [
        Group(f"training, N {tokens}", Size(tokens, batch=count, heads=HEADS), trained, True)
        for tokens, count in LENGTHS
    ]
    rotations = {"copy": copied, **{name: rotated(name) for name in ("rope", "rope, interleaved")}}
    decoding = {BASE: plain, **{f"{name}@": ours(f"{name}@") for name in ("none", "alibi", "t5")}}
    found += [
        Group(f"rotation of q and k, N {longest}", Size(longest, batch=batch, heads=HEADS), rotations, False),
        Group(f"one query, {longest} cached", Size(1, batch=batch, heads=HEADS, cached=longest - 1), decoding, False),
    ]
    return found[:1] if quick else found


def main(keep: bool, quick: bool = False, device: str | None = None) -> None:
    """Measure, and print the sums beside that of the baseline."""
    where = Device(device or "cpu")
    if not where.is_gpu:
        print("kernels are timed on a GPU only: ./dev bench kernels --device cuda")
        return
    results: dict[str, Any] = {}
    for group in groups(quick):
        rows: dict[str, Any] = {}
        for member, prepare in group.members.items():
            try:
                step = where.prepared(
                    lambda prepare=prepare, group=group: stepped(prepare(group.size, torch.bfloat16, group.learn))
                )
                rows[member] = _row(kernels, step, rows)
            except (RuntimeError, ValueError) as error:
                print(f"not timed, {group.title}, {member}: {str(error).splitlines()[0]}")
                continue
            print(f"{group.title:32} {member:24}{said(rows[member])}", flush=True)
        results[group.title] = rows
        if keep:
            path = save_on(where, "kernels", results)
    if keep:
        print(path)


def said(row: dict[str, Any]) -> str:
    """Return the sum, the ratio and the longest kernels of a row."""
    longest = ", ".join(f"{name[:32]} {time:.2f}" for name, time in list(row["kernels"].items())[:MOST])
    return f"{row['milliseconds']:8.3f} ms{row['ratio']:7.2f}   {longest}"


def _row(measure: Callable[[Step], dict[str, float]], step: Step, rows: dict[str, Any]) -> dict[str, Any]:
    found = measure(step)
    total = sum(found.values())
    return {
        "milliseconds": total,
        "ratio": total / next(iter(rows.values()))["milliseconds"] if rows else 1.0,
        "kernels": {name[:80]: time for name, time in found.items()},
    }
