"""The processes that train one model together: each has a share of every batch, and all take the same steps."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from ordinate.batch import Batch
from ordinate.checks import need
from ordinate.training.settings import MEETING, Diverged, Hardware, Stopped

# how long a process waits for the others
PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class Team:
    """One process among those that train a model.

    Args:
        rank: which one; 0 leads: it alone writes files and tells how far they are.
        world: how many there are.
    """

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and tells how far all are."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """The sequences of a batch that are this process's."""
        return batch if self.world == 1 else batch.split(len(batch.inputs) // self.world)[self.rank]

    def gather(self, number: float) -> Float[Tensor, " world"]:
        """What each process gives, the same for all of them, on the processor."""
        own = torch.tensor([number], dtype=torch.float64)
        if self.world == 1:
            return own
        own = own.to(device())
        everyone = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(everyone, own)
        return torch.cat(everyone).cpu()


@contextmanager
def meeting(hardware: Hardware) -> Iterator[Team]:
    """Meet the other processes of a training; all part when it is over.

    Raises:
        ValueError: there is not a process for each device, or fewer GPUs than devices.
    """
    if hardware.world == 1:
        yield Team()
        return
    check_devices(hardware)
    if dist.is_initialized():
        need_ranks(hardware, dist.get_world_size())
        yield Team(dist.get_rank(), hardware.world)
        return
    need_ranks(hardware, int(os.environ.get("WORLD_SIZE", "1")))
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=os.environ.get(MEETING, "env://"),
        rank=rank,
        world_size=hardware.world,
        timeout=PATIENCE,
    )
    try:
        yield Team(rank, hardware.world)
    except (Diverged, Stopped):
        # all have agreed on it; after any other error the others would be waited for in vain
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def leave(code: int = 0) -> NoReturn:
    """End this process now. On its way out, Python would free one by one what ends with the process, which takes
    seconds, and tear down threads that PyTorch still holds, and abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def device() -> torch.device:
    """The device of this process."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def check_devices(hardware: Hardware) -> None:
    """Raise a ValueError where this machine has GPUs, but fewer than are asked for."""
    found = torch.cuda.device_count()
    need(
        not found or hardware.devices <= found,
        "each device is a GPU of its own",
        f"got {hardware.devices} devices on a machine with {found}",
        f"give --devices {found}, or --nodes",
    )


def need_ranks(hardware: Hardware, processes: int) -> None:
    """Raise a ValueError unless there are as many processes as devices."""
    need(
        processes == hardware.world,
        f"training on {hardware.world} devices has a process for each",
        f"got {processes}",
        f"start it by `torchrun --nnodes {hardware.nodes} --nproc-per-node {hardware.devices}`, or `ordinate train`",
    )
