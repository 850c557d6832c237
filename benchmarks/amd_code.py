"""Code of the Triton kernels for AMD's MI300, which is not there: registers, spills and local memory of each kernel.

As `benchmarks.gpu_code`, by the compiler for AMD's GPUs in Triton's wheel. Nothing is timed, or has run there.
"""

from benchmarks.gpu_code import measured
from benchmarks.harness.saving import save

ARCHITECTURE = "gfx942"


def main(saved: bool) -> None:
    """Compile every configuration; print its registers, spills and local memory."""
    import triton

    rows = measured(ARCHITECTURE, (64, 128))
    if saved:
        save("amd_code", {"triton": triton.__version__, "architecture": ARCHITECTURE, "kernels": rows})
