"""A device without float64, such as an Apple GPU, imitated on the CPU.

Its tensors hold their numbers on the CPU, say that they lie on `meta`, and raise an error where an operation returns
float64 there, or mixes tensors of both devices.
"""

from contextlib import contextmanager, nullcontext

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ordinate.core import tensors

DEVICE, WIDE = torch.device("meta"), (torch.float64, torch.complex128)
# a tensor of one device may index or fill one of the other in these
MIXING = ("aten.index.", "aten.index_put", "aten._to_copy", "aten.copy_")


class Remote(torch.Tensor):
    """Tensor of the imitated device."""

    is_meta = False

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, held.size(), **layout, device=DEVICE)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Remote({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def compute(func, args, kwargs):
    """Run an operation on the numbers held, and wrap its results if they lie on the imitated device."""
    given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    there = [isinstance(x, Remote) for x in given]
    mixed = any(there) and any(x.ndim for x, far in zip(given, there, strict=True) if not far)
    if mixed and not str(func).startswith(MIXING):
        raise RuntimeError(f"{func} mixes tensors of two devices")
    wraps, device = any(there), kwargs.get("device")
    if device is not None:
        wraps, kwargs = torch.device(device) == DEVICE, {**kwargs, "device": torch.device("cpu")}
    before = {id(x.held): x for x in given if isinstance(x, Remote)}
    args, kwargs = pytree.tree_map_only(Remote, lambda x: x.held, (args, kwargs))
    out = func(*args, **kwargs)

    def wrap(x):
        if x.dtype in WIDE:
            raise TypeError(f"{func} returns {x.dtype}, which the device does not have")
        return before[id(x)] if id(x) in before else Remote(x.resolve_conj())

    return pytree.tree_map_only(torch.Tensor, wrap, out) if wraps else out


class Operations(TorchDispatchMode):
    """Creates tensors on the imitated device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Numbers(TorchFunctionMode):
    """Makes tensors of Python numbers, which PyTorch makes out of sight of a dispatch mode."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
            device = kwargs.pop("device", None)
            made = func(*args, **kwargs)
            return made if device is None else made.to(device)
        if func is torch.Tensor.tolist and isinstance(args[0], Remote):
            return args[0].held.tolist()
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            args = (args[0], tuple(torch.tensor(x) if isinstance(x, list) else x for x in index), *args[2:])
        return func(*args, **kwargs)


@contextmanager
def imitated(monkeypatch):
    """Make tensors on the imitated device, as one without float64; yields the device."""
    monkeypatch.setattr(tensors, "WITHOUT_FLOAT64", frozenset({DEVICE.type}))
    # meta has no autocast, and Apple GPUs have
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *given: False)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda *given: torch.float32)
    with Operations(), Numbers():
        yield DEVICE


def sent(x):
    """Copy a tensor to the imitated device."""
    return x.to(DEVICE)
