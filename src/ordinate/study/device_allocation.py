"""Device allocation: how many runs a machine can train in parallel, and which GPUs each of them gets."""

import os

import torch

from ordinate.core.checks import need
from ordinate.study.plan import Plan
from ordinate.study.thread_autotuning import available_cores
from ordinate.training.settings import Hardware


def max_parallel_runs(hardware: Hardware, threads: int) -> int:
    """Return how many runs fit on this machine at a time, by GPUs, or by cores if it has none."""
    gpus = torch.cuda.device_count()
    return gpus // hardware.devices if gpus else available_cores() // (hardware.devices * threads)


def check_plan(plan: Plan, hardware: Hardware) -> None:
    """Raise a ValueError unless every batch of this plan can be divided among these devices."""
    for part, _ in plan.cell_plans():
        need(
            part.steps > 0,
            "several devices need training steps",
            "got --devices with --steps 0",
            "leave --devices out",
        )
        hardware.check_batch_size(part.batch)


def check_machine(hardware: Hardware, threads: int, workers: int = 1) -> None:
    """Raise a ValueError unless this machine has devices for this number of parallel runs."""
    gpus, each = torch.cuda.device_count(), f"--devices {hardware.devices}"
    found, noun = (gpus, "GPU") if gpus else (available_cores(), "core")
    kind = f"{found} {noun}{'s' * (found > 1)}"
    need(
        hardware.devices <= found,
        "each device of a run must be a GPU of its own, or a core on a machine without GPUs",
        f"got {each} on a machine with {kind}",
        "give fewer, or more machines: --nodes",
    )
    came = each if gpus else f"{each} with {threads} threads each"
    need(
        workers <= max_parallel_runs(hardware, threads),
        f"parallel runs must fit on this machine, which has {kind}",
        f"got --workers {workers}, {came}",
        "reduce one of them",
    )


def gpu_environment(hardware: Hardware, number: int) -> dict[str, str]:
    """Return the environment that shows the number-th parallel run its own GPUs only; empty without GPUs."""
    gpus = torch.cuda.device_count()
    if not gpus:
        return {}
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(gpu) for gpu in range(gpus)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[number * hardware.devices : (number + 1) * hardware.devices])}
