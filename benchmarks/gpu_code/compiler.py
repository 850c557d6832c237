"""Compiles kernels for GPUs that are not there, and reads their code by the tools of Triton's wheel."""

import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

TOKENS = 1024
# distance from which on the bias is constant, as T5's
REACH = 128
TENSOR_CORES = re.compile(r"\b(?:HGMMA|HMMA|UTCHMMA|v_mfma)")
# shared memory that a program may have [bytes]
SHARED = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448, "gfx942": 65_536}
CLASSES = {"sm_80": "ampere", "sm_90": "hopper", "sm_100": "blackwell", "gfx942": "cdna"}


class Code(NamedTuple):
    """What the tools say of a compiled kernel.

    Args:
        registers: of a thread; of AMD's those for vectors.
        stack: bytes of a thread that do not fit into registers.
        shared: shared memory of a program [bytes].
        products: instructions of the tensor cores.
    """

    registers: int
    stack: int
    shared: int
    products: int


OnCode = Callable[[str, Any, Callable[[], Code]], None]
"""Called with the name and the options of a kernel, and what compiles it."""


class Device:
    """Stands for the driver of a GPU that is not there.

    Args:
        number: of the device; Triton keeps what it has compiled by that number, so each target has its own.
        target: what Triton compiles for.
    """

    def __init__(self, number: int, target: Any) -> None:
        self.number, self.target = number, target

    def get_current_device(self) -> int:
        return self.number

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self.target


def compile_for(architecture: str) -> None:
    """Make Triton compile for a GPU that is not there.

    Args:
        architecture: a key of `CLASSES`.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    amd = architecture.startswith("gfx")
    target = GPUTarget("hip", architecture, 64) if amd else GPUTarget("cuda", int(architecture[3:]), 32)
    triton.runtime.driver.set_active(Device(list(CLASSES).index(architecture), target))


def stand_for(architecture: str, *modules: ModuleType) -> None:
    """Make Triton compile for a GPU that is not there, and the host code of some modules choose its configurations.

    Args:
        architecture: a key of `CLASSES`.
        modules: modules of `ordinate.ops.triton` that ask for the class of a device.
    """
    compile_for(architecture)
    for module in modules:
        vars(module)["device_class"] = lambda device: CLASSES[architecture]


def silent(*given: Any) -> None:
    """Launch nothing."""


def causal_problem(dtype: torch.dtype, channels: int, **given: Any) -> Any:
    """Return causal attention of two heads that share keys.

    Args:
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        given: further fields of `ordinate.ops.triton.attention.Problem`.
    """
    from ordinate.ops.triton.attention import Problem

    q, k, v = (torch.zeros(1, TOKENS, heads, channels, dtype=dtype).transpose(1, 2) for heads in (2, 1, 1))
    return Problem(q, k, v, causal=True, scale=channels**-0.5, **given)


def recorder(
    on_code: OnCode, prefix: str = "", name: Callable[[Any, tuple[Any, ...]], str] | None = None
) -> Callable[..., None]:
    """Return what stands for the launch of a kernel: pass on its name, tile, and what compiles it.

    Args:
        on_code: called with them.
        prefix: put before the name.
        name: names a kernel by its arguments; None: by its function.
    """

    def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
        form = arguments[-1]
        said = function.__name__ if name is None else name(function, arguments)
        tile = {"rows": form.rows, "columns": getattr(form, "columns", None) or form.padded, **options}
        on_code(prefix + said, tile, partial(code_of, function, grid, arguments, options))

    return launch


def code_of(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> Code:
    """Compile a kernel and read its code by the tools of Triton's wheel.

    Args:
        function, grid, arguments, options: as in `ordinate.ops.triton.kernel.launch`.
    """
    import triton

    from ordinate.ops.triton.kernel import OPTIONS, for_amd

    if triton.runtime.driver.active.get_current_target().backend == "hip":
        made = function.run(*arguments, grid=grid, warmup=True, **OPTIONS, **for_amd(options))
        text = made.asm["amdgcn"]
        registers, stack = (
            int(re.search(rf"\.{name}:\s+(\d+)", text)[1]) for name in ("vgpr_count", "private_segment_fixed_size")
        )
        return Code(registers, stack, made.metadata.shared, len(TENSOR_CORES.findall(text)))
    made = function.run(*arguments, grid=grid, warmup=True, **OPTIONS, **options)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([tools / tool, *options, file.name], capture_output=True, text=True, check=True).stdout
            for tool, options in (("cuobjdump", ["-res-usage"]), ("nvdisasm", []))
        )
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return Code(registers, stack, made.metadata.shared, len(TENSOR_CORES.findall(code)))


def faults(architecture: str, code: Code) -> list[str]:
    """Return what is wrong with a configuration: spilled registers, or more shared memory than there is."""
    found = [f"{code.stack} bytes spilled"] if code.stack else []
    return found + ([f"{code.shared} bytes of shared memory"] if code.shared > SHARED[architecture] else [])
