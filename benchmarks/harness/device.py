"""Timing and memory on a device: events of the GPU, cold caches, and the bytes of its allocator."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.harness.workload import Step

# more than the L2 cache of any GPU [bytes]
COLD_BYTES = 2**28


@dataclass
class Device:
    """A device that benchmarks run on, by `--device`.

    A step on a GPU is timed between two events of its stream, after its caches have been overwritten and everything
    before it is done; what the host needs to launch it counts where the GPU waits for it. On a CPU, for rehearsals,
    it is the time of the clock.

    Args:
        name: as in `torch.device(name)`.
    """

    name: str
    _cold: Tensor | None = field(default=None, repr=False)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return torch.device(self.name).type == "cuda"

    @property
    def title(self) -> str:
        """The name of the device for files: letters, digits and dashes."""
        found = torch.cuda.get_device_name(self.name) if self.is_gpu else f"{self.name}-rehearsal"
        return re.sub(r"[^a-z0-9]+", "-", found.lower()).strip("-")

    def prepared(self, make: Callable[[], Step]) -> Step:
        """Make a step whose tensors and modules are on the device."""
        with torch.device(self.name):
            return make()

    def seconds(self, step: Step, times: int = 1) -> float:
        """Return the mean seconds of a call."""
        return sum(self._once(step) for _ in range(times)) / times

    def _once(self, step: Step) -> float:
        if not self.is_gpu:
            begin = time.perf_counter()
            step()
            return time.perf_counter() - begin
        if self._cold is None:
            self._cold = torch.empty(COLD_BYTES, dtype=torch.int8, device=self.name)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._cold.zero_()
        torch.cuda.synchronize(self.name)
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize(self.name)
        return begin.elapsed_time(end) / 1e3

    def peak_bytes(self, step: Step) -> int | None:
        """Return what a step holds at most beyond what was there before [bytes]; None on a CPU."""
        if not self.is_gpu:
            return None
        step()
        torch.cuda.synchronize(self.name)
        torch.cuda.reset_peak_memory_stats(self.name)
        before = torch.cuda.memory_allocated(self.name)
        step()
        torch.cuda.synchronize(self.name)
        return torch.cuda.max_memory_allocated(self.name) - before
