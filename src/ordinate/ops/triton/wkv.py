"""The WKV operator of RWKV-4 by Triton, and whether it may be used: only where it has agreed with the plain formula.

The operators are defined without Triton, which is imported when one of them runs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ordinate.ops.double_backward import Tensors, gradients, untraceable
from ordinate.ops.native.wkv import Channel, Channels, Sums
from ordinate.ops.triton.proofs import first_difference, unproved_reason, unsupported_reason

DEVICES = ("cpu", "cuda")
# the small case: no number of channels that programs have; several sequences
BATCH, TOKENS, CHANNELS = 3, 40, 45
NAMES = ("means", "last state", *(f"gradient of {name}" for name in ("k", "v", "the decay", "the bonus", "start")))
Plain = Callable[..., tuple[Tensor, Tensor]]
"""The plain formula of k, v, decay, bonus and start: means and last state, under the exponent that is given last."""

torch.library.define(
    "ordinate::triton_wkv",
    "(Tensor k, Tensor v, Tensor decay, Tensor bonus, Tensor start) -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "ordinate::triton_wkv_backward",
    "(Tensor gradient, Tensor gradient_end, Tensor[] inputs, Tensor[] saved)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def wkv(plain: Plain, k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums) -> tuple[Channels, Sums]:
    """Return the weighted mean at each token, and the final state, in float32.

    Args:
        plain: the plain formula, for second derivatives.
        k, v, decay, bonus, start: as in `ordinate.ops.wkv.wkv`.
    """
    inputs = k, v, decay, bonus, start
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return _Wkv.apply(plain, *inputs)
    return torch.ops.ordinate.triton_wkv(*inputs)[:2]


def unusable_reason(
    plain: Plain, k: Channels, v: Channels, decay: Channel, bonus: Channel, start: Sums
) -> str | None:
    """Return why `wkv` must not be used for its inputs; None: it has agreed with the plain formula on this device.

    Args:
        plain: the plain formula.
        k, v, decay, bonus, start: as in `wkv`; on other devices than GPUs it is not used.
    """
    reason = unsupported_reason(k, (torch.float32,)) or untraceable(k)
    if reason is not None:
        return reason
    inputs = k, v, decay, bonus, start
    if any(x.dtype != k.dtype or x.device != k.device for x in inputs):
        return "the inputs are of several dtypes or devices"
    if 0 in k.shape:
        return "a tensor is empty"
    device = str(k.device)
    return unproved_reason("WKV", (device,), "float32", lambda: _disagreement(plain, device))


def _disagreement(plain: Plain, device: str) -> str | None:
    """Return how the operator differs from the plain formula in a small case; None: it agrees."""
    # of its own, so that global random numbers stay as they are
    generator = torch.Generator("cpu").manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32, device="cpu")

    k, v = 3 * noise(BATCH, TOKENS, CHANNELS), noise(BATCH, TOKENS, CHANNELS)
    # beyond the range of exponentials, in channels of all paces
    k[..., ::2] *= 40
    start = torch.stack([noise(BATCH, CHANNELS), noise(BATCH, CHANNELS).exp(), noise(BATCH, CHANNELS)], 1)
    inputs = [x.to(device) for x in (k, v, -noise(CHANNELS).exp(), noise(CHANNELS), start)]
    upstream = noise(*k.shape).to(device), noise(BATCH, 2, CHANNELS).to(device)

    exponent = plain(*(x.double() for x in inputs))[1][:, 2:]

    def found(compute: Callable[..., tuple[Tensor, Tensor]], dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        with torch.enable_grad():
            y, end = compute(*leaves)
            # under one exponent, whatever a way divides by
            made = y, end[:, :2] * torch.exp(end[:, 2:].detach() - exponent.to(dtype))
            slopes = torch.autograd.grad(made, leaves, [x.to(dtype) for x in upstream])
        return [*made, *slopes[:4], slopes[4][:, :2]]

    exact, usual = found(plain, torch.float64), found(plain, torch.float32)
    ours = found(lambda *given: wkv(plain, *given), torch.float32)
    return first_difference(NAMES, ours, usual, exact)


class _Wkv(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is not a tensor)
    def forward(ctx: Any, plain: Plain, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.ops.ordinate.triton_wkv(*inputs)
        ctx.plain = plain
        ctx.save_for_backward(*inputs, *made)
        return made[0], made[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        # read once, as checkpointing allows
        kept = ctx.saved_tensors
        inputs, saved = kept[:5], kept[5:]
        # of outputs that are connected to the inputs, which an operator's inputs must not be
        made = [x.detach() for x in saved]

        def fast(*upstream: Tensor) -> tuple[Tensor, ...]:
            return torch.ops.ordinate.triton_wkv_backward(*upstream, inputs, made)

        if torch.compiler.is_compiling():
            return None, *fast(*grad_outputs)
        formula = partial(_formula, ctx.plain, made[1][:, 2:])
        return None, *gradients(fast, formula, inputs, grad_outputs)


def _formula(plain: Plain, exponent: Tensor, given: Tensors, upstream: Tensors) -> list[tuple[Tensors, Tensors]]:
    """The plain formula under the exponent of the final state that the operator has chosen."""
    return [(plain(*given, exponent), upstream)]


@torch.library.impl("ordinate::triton_wkv", DEVICES)
def _forward(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, start: Tensor) -> tuple[Tensor, ...]:
    from ordinate.ops.triton.wkv_kernels import forward

    return forward(k, v, decay, bonus, start)


@torch.library.register_fake("ordinate::triton_wkv")
def _shaped(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, start: Tensor) -> tuple[Tensor, ...]:
    return k.new_empty(k.shape), start.new_empty(start.shape), k.new_empty(k.shape), k.new_empty(k.shape)


@torch.library.impl("ordinate::triton_wkv_backward", DEVICES)
def _backward(
    gradient: Tensor, gradient_end: Tensor, inputs: Sequence[Tensor], saved: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    from ordinate.ops.triton.wkv_kernels import backward

    return backward((gradient, gradient_end), tuple(inputs), tuple(saved))


@torch.library.register_fake("ordinate::triton_wkv_backward")
def _shaped_backward(
    gradient: Tensor, gradient_end: Tensor, inputs: Sequence[Tensor], saved: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in inputs)
