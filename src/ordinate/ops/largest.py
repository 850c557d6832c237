"""Largest magnitude of the numbers of a tensor."""

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.native import build, scan
from ordinate.ops.native.largest import largest_magnitude
from ordinate.ops.native.plain_tensors import are_plain, is_observed

Numbers = Float[Tensor, "*any"]


def largest_entry(x: Numbers) -> float:
    """Largest magnitude of the numbers; NaN if one is, 0 if there are none.

    On CPUs in C++ where it can be built, for float32, bfloat16 and float16: at the speed of memory in any layout.
    """
    if not x.numel():
        return 0.0
    found = largest_magnitude(x) if _fits(x) else None
    return _by_pytorch(x.detach()) if found is None else found


def _fits(x: Numbers) -> bool:
    enough = x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.numel() >= scan.MIN_ELEMENTS
    return enough and are_plain(x) and not is_observed(x) and build.unavailable_reason("largest") is None


def _by_pytorch(x: Numbers) -> float:
    # for axes in another order than that of memory it takes up to three times as long
    low, high = x.permute(sorted(range(x.ndim), key=x.stride, reverse=True)).aminmax()
    # `max` would take a number before NaN
    return max(-low.item(), high.item()) if bool(low == low) else float("nan")
