"""The process group of a data-parallel training run."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need
from ordinate.data.batch import Batch
from ordinate.training.settings import RENDEZVOUS_VARIABLE, Hardware, TrainingDiverged, TrainingStopped

# timeout of collective operations
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
# how long a rank that is done waits for the others to finish
EXIT_TIMEOUT = timedelta(minutes=1)


@dataclass(frozen=True)
class ProcessGroup:
    """This process's rank in the data-parallel group.

    Args:
        rank: index of this process; rank 0 alone writes files and reports progress.
        world_size: number of processes.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and reports progress."""
        return self.rank == 0

    def local_part(self, batch: Batch) -> Batch:
        """Return this rank's sequences of a global batch."""
        return batch if self.world_size == 1 else batch.split(len(batch.inputs) // self.world_size)[self.rank]

    def all_gather(self, number: float) -> Float[Tensor, " world"]:
        """All-gather one number from each rank; the result is on the CPU and the same on all ranks."""
        own = torch.tensor([number], dtype=torch.float64)
        if self.world_size == 1:
            return own
        own = own.to(local_device())
        everyone = [torch.empty_like(own) for _ in range(self.world_size)]
        dist.all_gather(everyone, own)
        return torch.cat(everyone).cpu()


@contextmanager
def distributed_session(hardware: Hardware) -> Iterator[ProcessGroup]:
    """Initialise the process group, and destroy it on exit.

    Raises:
        ValueError: not one process per device, or fewer GPUs than devices.
    """
    if hardware.world_size == 1:
        yield ProcessGroup()
        return
    check_devices(hardware)
    if dist.is_initialized():
        need_ranks(hardware, dist.get_world_size())
        yield ProcessGroup(dist.get_rank(), hardware.world_size)
        return
    need_ranks(hardware, int(os.environ.get("WORLD_SIZE", "1")))
    rank = int(os.environ["RANK"])
    place = os.environ.get(RENDEZVOUS_VARIABLE, "env://")
    store, _, _ = next(dist.rendezvous(place, rank, hardware.world_size, timeout=COLLECTIVE_TIMEOUT))
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        store=dist.PrefixStore("collectives", store),
        rank=rank,
        world_size=hardware.world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )
    try:
        yield ProcessGroup(rank, hardware.world_size)
    except (TrainingDiverged, TrainingStopped):
        # raised on all ranks together; after any other error, destroying the group would wait for the others in vain
        wait_for_all(store, rank, hardware.world_size)
        dist.destroy_process_group()
        raise
    wait_for_all(store, rank, hardware.world_size)
    dist.destroy_process_group()


def wait_for_all(store: dist.Store, rank: int, world_size: int, timeout: timedelta = EXIT_TIMEOUT) -> None:
    """Wait until every rank has finished its last collective; not for ever, as one of them may have failed.

    A rank that exits earlier closes connections that others may still read. A collective cannot tell, as it has the
    same problem, so the store does. Rank 0, which may hold the store, leaves last.

    Args:
        store: the store of the rendezvous.
        rank: this rank.
        world_size: number of ranks.
        timeout: longest time to wait for the others.
    """
    everyone = range(world_size)
    with suppress(RuntimeError):
        store.set(f"finished/{rank}", "")
        store.wait([f"finished/{other}" for other in everyone], timeout)
        store.set(f"left/{rank}", "")
        if rank == 0:
            store.wait([f"left/{other}" for other in everyone], timeout)


def exit_now(code: int = 0) -> NoReturn:
    """Exit the process immediately, skipping the interpreter's shutdown.

    A normal exit frees objects one by one, which takes seconds, and may abort while tearing down PyTorch's threads.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def local_device() -> torch.device:
    """Return the device of this process."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def check_devices(hardware: Hardware) -> None:
    """Raise a ValueError if this machine has GPUs, but fewer than requested."""
    found = torch.cuda.device_count()
    need(
        not found or hardware.devices <= found,
        "each device needs its own GPU",
        f"got {hardware.devices} devices on a machine with {found}",
        f"give --devices {found}, or --nodes",
    )


def need_ranks(hardware: Hardware, processes: int) -> None:
    """Raise a ValueError unless there are as many processes as devices."""
    need(
        processes == hardware.world_size,
        f"training on {hardware.world_size} devices needs one process for each",
        f"got {processes}",
        f"start it by `torchrun --nnodes {hardware.nodes} --nproc-per-node {hardware.devices}`, or `ordinate train`",
    )
