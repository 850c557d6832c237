"""How many runs at a time a machine has devices for, and which each of them takes."""

import os

import torch

from ordinate.checks import need
from ordinate.study.pace import cores
from ordinate.study.plan import Plan
from ordinate.training.settings import Hardware


def capacity(hardware: Hardware, threads: int) -> int:
    """How many runs this machine has GPUs for at a time, or cores where it has none."""
    gpus = torch.cuda.device_count()
    return gpus // hardware.devices if gpus else cores() // (hardware.devices * threads)


def check_plan(plan: Plan, hardware: Hardware) -> None:
    """Raise a ValueError unless runs of this plan can be shared out over these devices."""
    for part, _ in plan.parts():
        need(part.steps > 0, "several devices train together", "got --devices with --steps 0", "leave --devices out")
        hardware.check(part.batch)


def check_machine(hardware: Hardware, threads: int, workers: int = 1) -> None:
    """Raise a ValueError unless this machine has devices for so many runs at a time."""
    gpus, each = torch.cuda.device_count(), f"--devices {hardware.devices}"
    found, noun = (gpus, "GPU") if gpus else (cores(), "core")
    kind = f"{found} {noun}{'s' * (found > 1)}"
    need(
        hardware.devices <= found,
        "each device of a run is a GPU of its own, or a core where there is none",
        f"got {each} on a machine with {kind}",
        "give fewer, or more machines: --nodes",
    )
    came = each if gpus else f"{each} of {threads} threads each"
    need(
        workers <= capacity(hardware, threads),
        f"runs at a time share what this machine has, {kind}",
        f"got --workers {workers}, {came}",
        "give fewer of one of them",
    )


def seat(hardware: Hardware, number: int) -> dict[str, str]:
    """The variables by which the number-th of the runs at a time sees its own GPUs only; none without GPUs."""
    gpus = torch.cuda.device_count()
    if not gpus:
        return {}
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(gpu) for gpu in range(gpus)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen[number * hardware.devices : (number + 1) * hardware.devices])}
