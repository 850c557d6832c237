"""A model of which every device has a copy; their gradients are averaged (DDP)."""

from datetime import timedelta

from pytorch_lightning.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel


class Replicated(DDPStrategy):
    """Each device has the whole model and a share of every batch.

    Args:
        timeout: how long a process waits for the others.
    Source: Li et al. 2020, PyTorch Distributed, https://arxiv.org/abs/2006.15704.
    """

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(timeout=timeout)

    def teardown(self) -> None:
        """Let go of what averages gradients while the processes are still together.

        Where it is the last to know them, it would end their threads while it holds Python's lock, for which one of
        them may be waiting: neither would ever go on. An error's traceback would keep it for so long.
        """
        copy = self.model
        super().teardown()
        if isinstance(copy, DistributedDataParallel):
            del copy.reducer, copy.logger
