"""The scan over chunks by Triton as an operator, and whether it may be used: only after it has agreed with the loop.

    S_c = M_c S_(c-1) + A_c

The operator is defined without Triton, which is imported when it runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.ops.double_backward import gradients, in_one, untraceable
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.triton.proofs import first_difference, unproved_reason, unsupported_reason

DEVICES = ("cpu", "cuda")
# beyond this the rows of a program do not fit into registers
MAX_WIDTH = 256
# of the small case: several of each, so that a wrong stride shows
BATCH, HEADS, CHUNKS = 2, 2, 3
NAMES = ("states", "last state", *(f"gradient of {name}" for name in ("the start", "the transitions", "the updates")))
Transitions = Float[Tensor, "b h chunks d d"]
Updates = Float[Tensor, "b h chunks d e"]
Loop = Callable[..., tuple[Tensor, Tensor]]
"""The loop over chunks, of start, transitions and updates: states before each chunk, and last state."""

torch.library.define(
    "ordinate::triton_chunk_scan", "(Tensor start, Tensor kept, Tensor added, bool back) -> (Tensor, Tensor)"
)


class Form(NamedTuple):
    """What a proof is valid for.

    Args:
        device: the GPU.
        width: rows of a state.
        depth: columns of a state.
    """

    device: str
    width: int
    depth: int


def scan(loop: Loop, start: Matrices, kept: Transitions, added: Updates) -> tuple[Updates, Matrices]:
    """Return the state before each chunk, and the one after the last, in float32.

    Args:
        loop: the loop over chunks, for second derivatives.
        start: the first state.
        kept: the transition matrix of each chunk.
        added: the update of each chunk.
    """
    inputs = start, kept, added
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return _Scan.apply(loop, *inputs)
    return torch.ops.ordinate.triton_chunk_scan(*inputs, False)


def unusable_reason(loop: Loop, start: Matrices, kept: Transitions, added: Updates) -> str | None:
    """Return why `scan` must not be used for its inputs; None: it has agreed with the loop there.

    The first call of a form computes a small case by both, forward and backward.

    Args:
        loop: the loop over chunks.
        start, kept, added: as in `scan`; on other devices than GPUs it is not used.
    """
    reason = unsupported_reason(added, (torch.float32,)) or untraceable(added)
    if reason is not None:
        return reason
    inputs = start, kept, added
    if any(x.dtype != added.dtype or x.device != added.device for x in inputs):
        return "the inputs are of several dtypes or devices"
    if 0 in added.shape:
        return "a tensor is empty"
    form = Form(str(added.device), *added.shape[3:])
    if form.width > MAX_WIDTH:
        return f"at most {MAX_WIDTH} channels of keys are supported, not {form.width}"
    said = f"{form.width} channels of keys, {form.depth} of values"
    return unproved_reason("chunk scan", form, said, lambda: _disagreement(loop, form))


def _disagreement(loop: Loop, form: Form) -> str | None:
    """Return how the operator differs from the loop in a small case; None: it agrees."""
    # of its own, so that global random numbers stay as they are
    generator = torch.Generator("cpu").manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32, device="cpu").to(form.device)

    state, every = (BATCH, HEADS, form.width, form.depth), (BATCH, HEADS, CHUNKS, form.width)
    inputs = noise(*state), noise(*every, form.width) / form.width**0.5, noise(*every, form.depth)
    upstream = noise(*every, form.depth), noise(*state)

    def found(compute: Loop, dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        with torch.enable_grad():
            made = compute(*leaves)
            return [*made, *torch.autograd.grad(made, leaves, [x.to(dtype) for x in upstream])]

    exact, usual = found(loop, torch.float64), found(loop, torch.float32)
    ours = found(lambda *given: scan(loop, *given), torch.float32)
    return first_difference(NAMES, ours, usual, exact)


class _Scan(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is not a tensor)
    def forward(ctx: Any, loop: Loop, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        states, last = torch.ops.ordinate.triton_chunk_scan(*inputs, False)
        ctx.loop = loop
        ctx.save_for_backward(*inputs, states)
        return states, last

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        *inputs, before = ctx.saved_tensors

        def fast(above: Tensor, above_last: Tensor) -> tuple[Tensor | None, ...]:
            # the gradients of the states go backwards: that of S_(c-1) is M_c^T times that of S_c, and its own
            after, of_start = torch.ops.ordinate.triton_chunk_scan(above_last, inputs[1], above, True)
            # long sums need float32: autocast would compute this product in 16 bits
            with torch.autocast(after.device.type, enabled=False):
                return of_start, after @ before.mT if ctx.needs_input_grad[2] else None, after

        if torch.compiler.is_compiling():
            return None, *fast(*grad_outputs)
        return None, *gradients(fast, in_one(ctx.loop), inputs, grad_outputs)


@torch.library.impl("ordinate::triton_chunk_scan", DEVICES)
def _forward(start: Tensor, kept: Tensor, added: Tensor, back: bool) -> tuple[Tensor, Tensor]:
    from ordinate.ops.triton import chunk_scan_kernels

    return chunk_scan_kernels.scan(start, kept, added, back)


@torch.library.register_fake("ordinate::triton_chunk_scan")
def _shaped(start: Tensor, kept: Tensor, added: Tensor, back: bool) -> tuple[Tensor, Tensor]:
    return added.new_empty(added.shape), start.new_empty(start.shape)
