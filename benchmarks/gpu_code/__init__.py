"""Code of the Triton kernels for GPUs that are not there: registers, spills and shared memory of each configuration.

Triton compiles each shipped configuration as it would at the first launch, with the arguments that the host code
passes; its tools then read the code. Nothing is timed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.gpu_code.compiler import CLASSES, TOKENS, Code, faults
from benchmarks.gpu_code.mixers import compiled_chunk_scan, compiled_rotation, compiled_scans, compiled_wkv
from benchmarks.gpu_code.tables import compiled, compiled_beside, compiled_curve, compiled_near
from benchmarks.gpu_code.vectors import compiled_vectors
from benchmarks.harness.printing import show
from benchmarks.harness.saving import save
from ordinate.ops.triton.tiles import TILES
from ordinate.ops.triton.vector_tiles import VECTOR_TILES

# kernels that pass over memory once, with one configuration: compiled with one number of channels
SMALL = {"find_poison", "find_delta", "find_key_numbers", "find_query_numbers"}


def visit(
    architecture: str, channels: Sequence[int], on_kernel: Callable[[dict[str, Any], Callable[[], Code]], None]
) -> None:
    """Call a function with what each configuration is, and what compiles it."""
    for dtype, size in ((torch.bfloat16, 2), (torch.float32, 4)):
        for width in sorted(set(channels) & set(TILES[CLASSES[architecture]][size])):

            def add(
                name: str, tile: Any, compile: Callable[[], Code], dtype: Any = dtype, width: int = width
            ) -> None:
                about = {"type": str(dtype).removeprefix("torch."), "channels": width, "kernel": name, **tile}
                on_kernel(about, compile)

            compiled(architecture, dtype, width, add)
            compiled_curve(architecture, dtype, width, add)
            if width in VECTOR_TILES[CLASSES[architecture]][size]:
                compiled_vectors(architecture, dtype, width, add)
            compiled_near(architecture, dtype, width, add)
            compiled_beside(architecture, dtype, width, add)
            compiled_rotation(architecture, dtype, width, add)
            if dtype == torch.float32:
                compiled_scans(architecture, width, add)
                compiled_chunk_scan(architecture, width, add)
        if dtype == torch.float32:
            compiled_wkv(architecture, TOKENS, add)


def measured(architecture: str, channels: Sequence[int] = (64, 128, 256)) -> list[dict[str, Any]]:
    """Compile the configurations of an architecture for heads of so many channels, by default all."""
    rows: list[dict[str, Any]] = []
    once: set[tuple[str, str]] = set()

    def add(about: dict[str, Any], compile: Callable[[], Code]) -> None:
        small = about["kernel"].rpartition(": ")[2], about["type"]
        if small in once:
            return
        code = compile()
        if small[0] in SMALL:
            once.add(small)
            return
        rows.append(about | code._asdict() | {"faults": faults(architecture, code)})
        print(architecture, *about.values(), code, *faults(architecture, code), flush=True)

    visit(architecture, channels, add)
    return rows


def main(saved: bool) -> None:
    """Compile every configuration for each GPU; print its registers, spills and shared memory."""
    import triton

    results = {name: measured(name) for name in CLASSES if name.startswith("sm_")}
    for architecture, rows in results.items():
        heads = ("registers", "stack", "shared", "products")
        cells = ((f"{x['kernel']} {x['type']} {x['channels']}", [f"{x[head]:>12}" for head in heads]) for x in rows)
        show(architecture, heads, 12, cells)
    if saved:
        save("gpu_code", {"triton": triton.__version__, "architectures": results})
