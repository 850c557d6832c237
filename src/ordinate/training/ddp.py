"""Data-parallel training with a full model replica on each device (DDP)."""

from datetime import timedelta

from pytorch_lightning.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel


class ReplicatedStrategy(DDPStrategy):
    """DDP strategy: each device has a full replica and its part of every batch.

    Args:
        timeout: timeout of collective operations.
    Source: Li et al. 2020, PyTorch Distributed, https://arxiv.org/abs/2006.15704.
    """

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(timeout=timeout)

    def teardown(self) -> None:
        """Release DDP's reducer and logger while the process group is still alive.

        If the reducer held the last reference to the process group, it would join the group's threads while holding
        the GIL, for which one of those threads may be waiting: a deadlock. The traceback of an error can keep the
        reducer alive for that long.
        """
        copy = self.model
        super().teardown()
        if isinstance(copy, DistributedDataParallel):
            del copy.reducer, copy.logger
