"""Linear attention with decay by Triton as an operator, and whether it may be used: only where it has proved itself.

The operators are defined without Triton, which is imported when one of them runs.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.shapes import Outputs
from ordinate.ops.double_backward import gradients, in_one, untraceable
from ordinate.ops.native.recurrence import Bonus, Matrices
from ordinate.ops.triton.proofs import unproved_reason, unsupported_reason
from ordinate.ops.triton.recurrence_case import disagreement
from ordinate.ops.triton.scan_outputs import empty_states

DEVICES = ("cpu", "cuda")
# each of `g` groups of heads shares them
Grouped = Float[Tensor, "b g n d"]
# of each channel, or one that all channels of a head share
Logs = Float[Tensor, "b h n _"]
Plain = Callable[..., tuple[Tensor, Tensor]]
"""The plain formula of q, k, v, w, bonus and start: outputs and last state."""

torch.library.define(
    "ordinate::triton_recurrence",
    "(Tensor q, Tensor k, Tensor v, Tensor w, Tensor? bonus, Tensor start) -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    "ordinate::triton_recurrence_backward",
    "(Tensor gradient, Tensor gradient_last, Tensor?[] inputs, Tensor states, Tensor products)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


class Form(NamedTuple):
    """What a proof is valid for.

    Args:
        device: the GPU.
        width: channels of keys.
        depth: channels of values.
        shared: whether all channels of a head share the decay, and there is no bonus.
        before: whether tokens are read before they are stored.
        grouped: whether several heads share queries and keys.
    """

    device: str
    width: int
    depth: int
    shared: bool
    before: bool
    grouped: bool


def recurrence(
    plain: Plain, q: Grouped, k: Grouped, v: Outputs, w: Logs, bonus: Bonus | None, start: Matrices
) -> tuple[Outputs, Matrices]:
    """Return the output of each token and the final state.

        S_t = diag(e^{w_t}) S_{t-1} + k_t^T v_t,     y_t = q_t S_t,  or with a bonus u  q_t S_{t-1} + (q_t u k_t) v_t

    Args:
        plain: the plain formula, for second derivatives.
        q: queries, in float32, as are the others.
        k: keys, in as many groups.
        v: values.
        w: log decays, not positive.
        bonus: u; None: tokens are read after they are stored.
        start: the first state.
    """
    inputs = q, k, v, w, bonus, start
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
        return _Recurrence.apply(plain, *inputs)
    return torch.ops.ordinate.triton_recurrence(*inputs)[:2]


def unusable_reason(
    plain: Plain, q: Grouped, k: Grouped, v: Outputs, w: Logs, bonus: Bonus | None, start: Matrices
) -> str | None:
    """Return why `recurrence` must not be used for its inputs; None: it has agreed with the plain formula there.

    The first call of a form computes a small case by both, forward and backward.

    Args:
        plain: the plain formula.
        q, k, v, w, bonus, start: as in `recurrence`; on other devices than GPUs it is not used.
    """
    reason = unsupported_reason(q, (torch.float32,)) or untraceable(q)
    if reason is not None:
        return reason
    inputs = [x for x in (q, k, v, w, bonus, start) if x is not None]
    if any(x.dtype != q.dtype or x.device != q.device for x in inputs):
        return "the inputs are of several dtypes or devices"
    if any(0 in x.shape for x in inputs):
        return "a tensor is empty"
    grouped = q.shape[1] != v.shape[1]
    shared = w.shape[3] == 1 and bonus is None
    form = Form(str(q.device), q.shape[3], v.shape[3], shared, bonus is not None, grouped)
    said = f"{form.width} channels of keys, {form.depth} of values, "
    said += "one decay for each head" if form.shared else "a decay for each channel"
    return unproved_reason("recurrence", form, said, lambda: disagreement(recurrence, plain, form))


class _Recurrence(torch.autograd.Function):
    @staticmethod
    # pyrefly: ignore[bad-override]  (a function is not a tensor)
    def forward(ctx: Any, plain: Plain, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        y, last, states, products = torch.ops.ordinate.triton_recurrence(*inputs)
        ctx.plain = plain
        ctx.save_for_backward(*inputs, states, products)
        return y, last

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        *inputs, states, products = ctx.saved_tensors

        def fast(*upstream: Tensor) -> tuple[Tensor | None, ...]:
            found = torch.ops.ordinate.triton_recurrence_backward(*upstream, inputs, states, products)
            needed = zip(found, ctx.needs_input_grad[1:], strict=True)
            return tuple(x if need else None for x, need in needed)

        if torch.compiler.is_compiling():
            return None, *fast(*grad_outputs)
        return None, *gradients(fast, in_one(ctx.plain), inputs, grad_outputs)


@torch.library.impl("ordinate::triton_recurrence", DEVICES)
def _forward(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, bonus: Tensor | None, start: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from ordinate.ops.triton.scans import Problem, forward

    return forward(Problem(q, k, v, w, bonus, start))


@torch.library.register_fake("ordinate::triton_recurrence")
def _shaped(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, bonus: Tensor | None, start: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return empty_states(v, start)


@torch.library.impl("ordinate::triton_recurrence_backward", DEVICES)
def _backward(
    gradient: Tensor, gradient_last: Tensor, inputs: Sequence[Any], states: Tensor, products: Tensor
) -> tuple[Tensor, ...]:
    from ordinate.ops.triton.scans import Problem, backward

    found = backward((gradient, gradient_last), Problem(*inputs), states, products)
    return tuple(gradient.new_empty(0) if x is None else x for x in found)


@torch.library.register_fake("ordinate::triton_recurrence_backward")
def _shaped_backward(
    gradient: Tensor, gradient_last: Tensor, inputs: Sequence[Any], states: Tensor, products: Tensor
) -> tuple[Tensor, ...]:
    return tuple(gradient.new_empty(0 if x is None else x.shape) for x in inputs)
