"""Rotation by Triton, and whether it may be used: only after it has agreed with the plain formula.

Triton is imported when it runs. It is no operator of PyTorch: nothing that traces operators comes here, and the
dispatch would take a fifth of the time that a rotation takes the host.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ordinate.core.closeness import difference
from ordinate.ops.triton.availability import MAX_PROGRAMS
from ordinate.ops.triton.proofs import unproved_reason, unsupported_reason

TYPES = (torch.float32, torch.float16, torch.bfloat16)
# widest heads of the kernel
MAX_CHANNELS = 1024
# tokens and heads of the small case: neither is a multiple of what a program has
TOKENS, HEADS = 192, 5

Plain = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""The plain formula: of channels, cosines, sines, and whether its transpose is applied."""


class Form(NamedTuple):
    """What a proof is valid for.

    Args:
        device: the GPU.
        dtype: dtype of the channels.
        width: channels of a head.
        pairs: rotated pairs.
        shared: whether all heads have the same angles.
        interleaved: channels pair up with their neighbours.
        both: two tensors are rotated at once.
    """

    device: str
    dtype: torch.dtype
    width: int
    pairs: int
    shared: bool
    interleaved: bool
    both: bool


def rotate(
    x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, back: bool, into: Tensor | None = None
) -> Tensor:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of channels, in one pass over memory.

    Args:
        x: float32, bfloat16 or float16 (batch, heads, tokens, channels), with any strides.
        cos: float32 (batch or 1, heads or 1, tokens, pairs), as is sin.
        sin: multiplies the partner.
        interleaved: channels pair up with their neighbours; otherwise the first half with the second.
        back: apply the transpose, with -sin.
        into: memory for the result, of the shape and dtype of `x`, with contiguous channels; None: new memory.
    """
    # imports Triton
    from ordinate.ops.triton import rotate as kernels

    x = _near_channels(x)
    out = torch.empty_like(x) if into is None else into
    kernels.rotate(x, out, cos, sin, interleaved=interleaved, back=back)
    return out


def rotate_both(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool,
    back: bool,
    into: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by one launch: `rotate` of each, where all heads share the angles.

    Args:
        q: as in `rotate`.
        k: of the same dtype and sizes but for the number of heads.
        cos: float32 (batch or 1, 1, tokens, pairs), as is sin.
        sin: multiplies the partner.
        interleaved: as in `rotate`.
        back: likewise.
        into: memory for the rotated keys, likewise.
    """
    from ordinate.ops.triton import rotate as kernels

    q, k = _near_channels(q), _near_channels(k)
    made = torch.empty_like(q), torch.empty_like(k) if into is None else into
    kernels.rotate(q, made[0], cos, sin, interleaved=interleaved, back=back, other=(k, made[1]))
    return made


def _near_channels(x: Tensor) -> Tensor:
    """Return the tensor itself if offsets between a token's channels have 32 bits, as in the kernel, else a copy.

    A tensor that PyTorch negates as it is read is copied, too: operators of PyTorch would have done so.
    """
    x = x.resolve_neg()
    return x if x.shape[3] * x.stride(3) < 2**31 else x.contiguous()


def unusable_reason(x: Tensor, cos: Tensor, *, interleaved: bool, plain: Plain, both: bool = False) -> str | None:
    """Return why the kernel must not rotate a tensor; None: it has agreed with the plain formula there.

    The first call of a form computes a small case by both, in both directions.

    Args:
        x: the channels; on other devices than GPUs the kernel is not used.
        cos: the cosines.
        interleaved: as in `rotate`.
        plain: the plain formula.
        both: ask of `rotate_both`.
    """
    reason = unsupported_reason(x, TYPES)
    if reason is not None:
        return reason
    if x.shape[3] > MAX_CHANNELS:
        return f"more than {MAX_CHANNELS} channels are not supported"
    if x.shape[0] > MAX_PROGRAMS:
        return f"more than {MAX_PROGRAMS} sequences are not supported"
    form = Form(str(x.device), x.dtype, x.shape[3], cos.shape[3], cos.shape[1] == 1, interleaved, both)
    said = f"{form.dtype}, {form.width} channels, {form.pairs} pairs".removeprefix("torch.")
    said += ", queries and keys" if both else ""
    return unproved_reason("rotation", form, said, lambda: _disagreement(form, plain))


def _disagreement(form: Form, plain: Plain) -> str | None:
    """Return how the kernel differs from the plain formula in a small case; None: it agrees."""
    # of its own, so that global random numbers stay as they are
    generator = torch.Generator("cpu").manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")

    angles = noise(2, 1 if form.shared else HEADS, TOKENS, form.pairs)
    cos, sin = (wave.float().to(form.device) for wave in (1.1 * angles.cos(), 1.1 * angles.sin()))
    # tokens before heads, as a projection leaves them
    x = noise(2, TOKENS, HEADS, form.width).transpose(1, 2).to(form.dtype).to(form.device)
    for back in (False, True):
        made = (
            _both(x, cos, sin, form.interleaved, back)
            if form.both
            else [rotate(x, cos, sin, interleaved=form.interleaved, back=back)]
        )
        usual, exact = plain(x, cos, sin, back), plain(x.double(), cos.double(), sin.double(), back)
        for out in made:
            found = difference(out, usual[:, : out.shape[1]], exact[:, : out.shape[1]])
            if found is not None:
                return f"it differs from the plain formula in a small case: {found}"
    return None


def _both(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> tuple[Tensor, Tensor]:
    # one head of keys less, written into a part of a cache
    keys = x[:, :-1]
    cache = keys.new_empty(*keys.shape[:2], 2 * TOKENS, keys.shape[3])
    return rotate_both(x, keys, cos, sin, interleaved=interleaved, back=back, into=cache[:, :, TOKENS:])
