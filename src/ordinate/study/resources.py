"""Memory and device of this process, for the cost of a run."""

import sys

import torch

from ordinate.study.manifest import processor


def peak_memory() -> int | None:
    """Peak memory of this process [bytes]: on a GPU, of PyTorch's allocator there; else its resident memory.

    None on systems that do not report it.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux reports kilobytes, macOS bytes
    return peak if sys.platform == "darwin" else peak * 1024


def device_name() -> str:
    """Name of the GPU, or of the processor without one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
