"""Compiles the rotation of queries and keys, and the kernels of recurrences."""

from functools import partial
from typing import Any

import torch

from benchmarks.gpu_code.compiler import TOKENS, OnCode, code_of, compile_for, recorder, stand_for

LAYOUTS = {False: "half", True: "interleaved"}


def compiled_rotation(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the rotation of half of the channels, and of all, of queries as a projection leaves them.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of the channels.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import rotate

    compile_for(architecture)
    x = torch.zeros(1, TOKENS, 8, channels, dtype=dtype).transpose(1, 2)
    for interleaved, pairs in ((False, channels // 2), (True, channels // 2), (False, channels // 4)):
        rotate.launch = recorder(on_code, name=_name_of_rotation)
        waves = torch.zeros(2, 1, 1, TOKENS, pairs).unbind()
        rotate.rotate(x, torch.empty_like(x), *waves, interleaved=interleaved, back=False)


def _name_of_rotation(function: Any, arguments: tuple[Any, ...]) -> str:
    form = arguments[-1]
    return "rotate_partly" if form.width > 2 * form.pairs else "rotate_" + LAYOUTS[form.interleaved]


def compiled_scans(architecture: str, channels: int, on_code: OnCode) -> None:
    """Compile linear attention with decay, forward and backward: RWKV-6, gated linear attention and RetNet.

    Args:
        architecture: a key of `CLASSES`.
        channels: channels of a head's keys and values, in float32.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import scans

    stand_for(architecture, scans)
    x = torch.zeros(1, TOKENS, 2, channels).transpose(1, 2)
    start, bonus = torch.zeros(1, 2, channels, channels), torch.zeros(2, channels)
    for mixer, logs, given in (("rwkv6", x, bonus), ("gla", x, None), ("retnet", x[..., :1], None)):
        scans.launch = recorder(on_code, f"{mixer}: ", _with_direction)
        problem = scans.Problem(x, x, x, logs, given, start)
        y, last, *kept = scans.forward(problem)
        scans.backward((y, last), problem, *kept)


def _with_direction(function: Any, arguments: tuple[Any, ...]) -> str:
    return function.__name__ + ("_back" if arguments[-1].back else "")


def compiled_wkv(architecture: str, channels: int, on_code: OnCode) -> None:
    """Compile the WKV operator of RWKV-4, forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        channels: channels, in float32.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import wkv_kernels

    compile_for(architecture)

    def launch(function: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, int]) -> None:
        on_code(
            f"rwkv4: {function.__name__}",
            {"rows": 1, "columns": arguments[-1], **options},
            partial(code_of, function, grid, arguments, options),
        )

    wkv_kernels.launch = launch
    k, v = torch.zeros(2, 1, TOKENS, channels)
    given = k, v, torch.zeros(channels), torch.zeros(channels), torch.zeros(1, 3, channels)
    y, end, *rest = wkv_kernels.forward(*given)
    wkv_kernels.backward((y, end), given, (y, end, *rest))


def compiled_chunk_scan(architecture: str, channels: int, on_code: OnCode) -> None:
    """Compile the scan over chunks of the delta rule, forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        channels: channels of a head's keys and values, in float32.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import chunk_scan_kernels

    compile_for(architecture)

    chunk_scan_kernels.launch = recorder(on_code, "delta: ", _with_direction)
    start, kept = torch.zeros(1, 2, channels, channels), torch.zeros(1, 2, 3, channels, channels)
    for back in (False, True):
        chunk_scan_kernels.scan(start, kept, kept, back)
