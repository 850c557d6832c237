"""Rotation by Triton as an operator, and whether it may be used: only after it has agreed with the plain formula.

The operator is defined without Triton, which is imported when it runs.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ordinate.core.closeness import difference
from ordinate.core.devices import on_gpu
from ordinate.ops.triton.availability import unavailable_reason

TYPES = (torch.float32, torch.float16, torch.bfloat16)
# widest heads of the kernel
MAX_CHANNELS = 1024
# tokens and heads of the small case: neither is a multiple of what a program has
TOKENS, HEADS = 192, 5
UNTESTED = "it has not been tested on this device, which cannot be done while a CUDA graph is captured"

Plain = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""The plain formula: of channels, cosines, sines, and whether its transpose is applied."""

torch.library.define(
    "ordinate::triton_rotate", "(Tensor x, Tensor cos, Tensor sin, bool interleaved, bool back) -> Tensor"
)


class Form(NamedTuple):
    """What a proof is valid for.

    Args:
        device: the GPU.
        dtype: dtype of the channels.
        width: channels of a head.
        pairs: rotated pairs.
        shared: whether all heads have the same angles.
        interleaved: channels pair up with their neighbours.
    """

    device: torch.device
    dtype: torch.dtype
    width: int
    pairs: int
    shared: bool
    interleaved: bool


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, back: bool) -> Tensor:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of channels, in one pass over memory.

    Args:
        x: float32, bfloat16 or float16 (batch, heads, tokens, channels), with any strides.
        cos: float32 (batch or 1, heads or 1, tokens, pairs), as is sin.
        sin: multiplies the partner.
        interleaved: channels pair up with their neighbours; otherwise the first half with the second.
        back: apply the transpose, with -sin.
    """
    return torch.ops.ordinate.triton_rotate(x, cos, sin, interleaved, back)


@torch.library.impl("ordinate::triton_rotate", ("cpu", "cuda"))
def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
    from ordinate.ops.triton import rotate as kernels

    out = torch.empty_like(x)
    kernels.rotate(x, cos, sin, out, interleaved=interleaved, back=back)
    return out


@torch.library.register_fake("ordinate::triton_rotate")
def _shaped(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
    return torch.empty_like(x)


def unusable_reason(x: Tensor, cos: Tensor, *, interleaved: bool, plain: Plain) -> str | None:
    """Return why the operator must not rotate a tensor; None: it has agreed with the plain formula there.

    The first call of a form computes a small case by both, in both directions; that alone waits for the GPU. What is
    found is held by the process. Where they disagree, or the kernel fails, there is one warning.

    Args:
        x: the channels; on other devices than GPUs the operator is not used.
        cos: the cosines.
        interleaved: as in `rotate`.
        plain: the plain formula.
    """
    if not on_gpu(x) or type(x) is not Tensor:
        return "only tensors on GPUs are supported"
    if x.dtype not in TYPES:
        return f"{x.dtype} is not supported"
    if x.shape[3] > MAX_CHANNELS:
        return f"more than {MAX_CHANNELS} channels are not supported"
    reason = unavailable_reason(x.device)
    if reason is not None:
        return reason
    form = Form(x.device, x.dtype, x.shape[3], cos.shape[3], cos.shape[1] == 1, interleaved)
    known = _found()
    if form not in known:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return UNTESTED
        known[form] = _tested(form, plain)
    return known[form]


@cache
def _found() -> dict[Form, str | None]:
    """What this process has found: for each form the reason against it, or None."""
    return {}


def _tested(form: Form, plain: Plain) -> str | None:
    try:
        # tensors made here must be usable with autograd, whatever the caller's mode
        with torch.inference_mode(False), torch.no_grad():
            reason = _disagreement(form, plain)
    # whatever a kernel or its compiler does here, PyTorch can rotate
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        reason = f"it failed in a small case: {type(error).__name__}: {lines[0]}"
    if reason is not None:
        what = f"{form.dtype}, {form.width} channels, {form.pairs} pairs".removeprefix("torch.")
        warnings.warn(f"the Triton rotation is not used for {what}: {reason}", RuntimeWarning, stacklevel=4)
    return reason


def _disagreement(form: Form, plain: Plain) -> str | None:
    """Return how the operator differs from the plain formula in a small case; None: it agrees."""
    # of its own, so that global random numbers stay as they are
    generator = torch.Generator("cpu").manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")

    angles = noise(2, 1 if form.shared else HEADS, TOKENS, form.pairs)
    cos, sin = (wave.float().to(form.device) for wave in (1.1 * angles.cos(), 1.1 * angles.sin()))
    # tokens before heads, as a projection leaves them
    x = noise(2, TOKENS, HEADS, form.width).transpose(1, 2).to(form.dtype).to(form.device)
    for back in (False, True):
        exact = plain(x.double(), cos.double(), sin.double(), back)
        out = rotate(x, cos, sin, interleaved=form.interleaved, back=back)
        found = difference(out, plain(x, cos, sin, back), exact)
        if found is not None:
            return f"it differs from the plain formula in a small case: {found}"
    return None
