"""The kind of device whose rules apply to a tensor: what may be read, and which kernels may be chosen."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

# CUDA, and ROCm, which PyTorch gives the same name
GPU = "cuda"


class _Rehearsal:
    """The kind of device that this process pretends its CPU tensors to be on; None: none."""

    device_type: str | None = None


_REHEARSAL = _Rehearsal()


def device_type(x: Tensor) -> str:
    """Return the kind of device whose rules apply to a tensor: `cpu`, `cuda`, `mps` ..."""
    return _REHEARSAL.device_type or x.device.type


def on_cpu(x: Tensor) -> bool:
    """Whether a tensor is on a CPU, so that reading a number of it takes no time and waits for nothing."""
    return device_type(x) == "cpu"


def on_gpu(x: Tensor) -> bool:
    """Whether a tensor is on an NVIDIA or AMD GPU."""
    return device_type(x) == GPU


def is_rehearsed() -> bool:
    """Whether the present rules are those of another device than that of the tensors (`as_if_on`)."""
    return _REHEARSAL.device_type is not None


@contextmanager
def as_if_on(kind: str) -> Iterator[None]:
    """Choose as for tensors on another kind of device, and compute on the one where they are.

    It tells on any machine what would be chosen on a GPU, and lets all of it be computed, and tested, on a CPU:

        with as_if_on("cuda"):
            explain(q, k, v, at)

    Args:
        kind: the kind of device, as in `torch.device(kind)`.
    """
    before, _REHEARSAL.device_type = _REHEARSAL.device_type, kind
    try:
        yield
    finally:
        _REHEARSAL.device_type = before


def send(x: Tensor, device: torch.device | str | None) -> Tensor:
    """Copy a CPU tensor to a device without waiting for it; None: the default device."""
    # torch.compile cannot trace `torch.get_default_device`
    device = torch.empty(0).device if device is None else torch.device(device)
    # a copy from ordinary memory waits for all that the device was given before; one from pinned memory does not
    return x.pin_memory().to(device, non_blocking=True) if device.type == GPU else x.to(device)


def numbers_beside(x: Tensor, numbers: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Return constants as a tensor on the device of `x`.

    On a GPU they are copied there at the first use in the process and held: each copy from ordinary memory would wait
    for all work that the device has been given, and is not possible while a CUDA graph is captured.

    Args:
        x: a tensor on the device.
        numbers: the constants; a sequence of sequences gives a matrix.
        dtype: dtype of the result.
    """
    if on_cpu(x) or torch.compiler.is_compiling() or type(x) is not Tensor:
        return torch.tensor(numbers, dtype=dtype, device=x.device)
    return _held(tuple(tuple(row) if isinstance(row, Sequence) else row for row in numbers), dtype, x.device)


@lru_cache(maxsize=256)
def _held(numbers: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # an inference tensor could not be used in training later
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=dtype, device=device)
