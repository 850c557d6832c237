"""Whether Triton is installed, and whether it runs on a GPU or, for tests, in its interpreter on the CPU."""

import os
from importlib.util import find_spec

import torch

INTERPRETER_VARIABLE = "TRITON_INTERPRET"
"""Environment variable by which Triton interprets kernels on the CPU; it is read when Triton is imported."""


# of the second and the third axis of a grid, as CUDA allows
MAX_PROGRAMS = 65535


def unavailable_reason(device: torch.device) -> str | None:
    """Return why Triton cannot run kernels for a device, with what to do; None if it can."""
    interpreted = os.environ.get(INTERPRETER_VARIABLE, "0") not in ("", "0")
    if device.type != "cuda" and not (device.type == "cpu" and interpreted):
        return "only GPUs are supported (CPUs in Triton's interpreter: TRITON_INTERPRET=1)"
    if not _is_installed():
        return "Triton is not installed: pip install 'triton>=3.6'"
    return None


def _is_installed() -> bool:
    return find_spec("triton") is not None


# torch.compiler.assume_constant_result, whose import of the compiler takes a second, sets this
_is_installed._dynamo_marked_constant = True  # type: ignore[attr-defined]
