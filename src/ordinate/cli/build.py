"""`ordinate build`: compile the C++ kernels ahead of time."""

import time
from typing import TYPE_CHECKING

from ordinate.cli.plain_text import styled, write_line

if TYPE_CHECKING:
    from ordinate.ops.native.build import KernelBuild


def build(*, check: bool = False) -> int:
    """Compile the C++ kernels that are not compiled yet, in parallel; exits with 1 if a kernel is not available.

    Without this command they are compiled when the first of them is used. Everything works without them, more slowly.

    Parameters
    ----------
    check
        Compile nothing; show which kernels are compiled.
    """
    from ordinate.ops.native.build import build_kernels, built_kernels
    from ordinate.ops.native.compiler import UnavailableError

    begin = time.perf_counter()
    try:
        kernels = built_kernels() if check else build_kernels(on_built=_show)
    except UnavailableError as why:
        write_line(styled("not available:", "yellow"), styled(str(why)))
        return 1
    seconds = time.perf_counter() - begin
    for kernel in kernels:
        if kernel.seconds is None:
            _show(kernel)
    ready = [kernel.path for kernel in kernels if kernel.path is not None]
    made = sum(kernel.seconds is not None for kernel in kernels if kernel.path is not None)
    when = f", {made} compiled now in {seconds:.1f} s" if made else ""
    where = f", in {ready[0].parent}" if ready else ""
    write_line(styled(f"{len(ready)} of {len(kernels)} kernels are ready{when}{where}"))
    return 0 if len(ready) == len(kernels) else 1


def _show(kernel: "KernelBuild") -> None:
    style: tuple[str, ...] = ("green",)
    if kernel.problem is not None:
        state, style = f"failed    {kernel.seconds:.1f} s", ("bold", "red")
    elif kernel.path is None:
        state, style = "not compiled", ("yellow",)
    else:
        state = "ready" if kernel.seconds is None else f"compiled  {kernel.seconds:.1f} s"
    write_line(f"{kernel.name:<12}", styled(state, *style))
    if kernel.problem is not None:
        write_line(styled(kernel.problem))
