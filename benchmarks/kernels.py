"""Time that a GPU computes in training with each scheme, by kernel: PyTorch's profiler, without waits for the host.

`./dev bench kernels --device cuda`. Beside `./dev bench attention --device cuda`, which measures what passes until a
step is done, it tells whether kernels or the host that launches them limit the speed. Times are those of one step,
forward and backward, in bfloat16, the mean of three steps.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.attention.contenders import BASE, Size, ours, plain
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
    "deberta@triton",
    "transformer_xl@triton",
)
# tokens and sequences of each measurement, so that all have as many tokens
LENGTHS = ((8192, 4), (4096, 8), (2048, 16))
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


def main(keep: bool, quick: bool = False, device: str | None = None) -> None:
    """Measure, and print the sums beside that of attention without positions."""
    where = Device(device or "cpu")
    if not where.is_gpu:
        print("kernels are timed on a GPU only: ./dev bench kernels --device cuda")
        return
    results: dict[str, Any] = {}
    for tokens, batch in LENGTHS[-1:] if quick else LENGTHS:
        size, rows = Size(tokens, batch=batch, heads=16), {}
        for member in (BASE, *MEMBERS):
            prepare = plain if member == BASE else ours(member)
            try:
                step = where.prepared(lambda prepare=prepare, size=size: stepped(prepare(size, torch.bfloat16, True)))
                rows[member] = _row(kernels, step, rows)
            except (RuntimeError, ValueError) as error:
                print(f"not timed, {member}, N {tokens}: {str(error).splitlines()[0]}")
                continue
            longest = ", ".join(
                f"{name[:32]} {time:.2f}" for name, time in list(rows[member]["kernels"].items())[:MOST]
            )
            row = rows[member]
            print(f"N {tokens:6} {member:24}{row['milliseconds']:8.2f} ms{row['ratio']:7.2f}   {longest}", flush=True)
        results[f"training, N {tokens}"] = rows
        if keep:
            path = save_on(where, "kernels", results)
    if keep:
        print(path)


def _row(measure: Callable[[Step], dict[str, float]], step: Step, rows: dict[str, Any]) -> dict[str, Any]:
    found = measure(step)
    total = sum(found.values())
    return {
        "milliseconds": total,
        "ratio": total / rows[BASE]["milliseconds"] if rows else 1.0,
        "kernels": {name[:80]: time for name, time in found.items()},
    }
