"""Attention by Triton as operators that torch.compile does not look into.

They are defined without Triton, which is imported when one of them runs.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ordinate.ops.triton.decay import skips_keys
from ordinate.ops.triton.outputs import empty_gradients, empty_kept, empty_outputs

# others: table, slopes, sinks, lines and shares of a curve, documents of queries and of keys, knots of the curve;
# structure: causal, start, window, origin, far; numbers: scale, cap
GIVEN = "Tensor?[] others, SymInt[] structure, float[] numbers"
DEVICES = ("cpu", "cuda")
Optional = Sequence[Tensor | None]
Integers = Sequence[int | torch.SymInt]

# output and log-sum-exp, and what the backward pass needs again: `ordinate.ops.triton.attention.Kept`
MADE = "Tensor output, Tensor lse, Tensor poison, Tensor needed, Tensor table"
FORWARD = f"(Tensor q, Tensor k, Tensor v, {GIVEN}) -> ({MADE})"
torch.library.define("ordinate::triton_attention", FORWARD)
torch.library.define("ordinate::triton_near_far", FORWARD)
torch.library.define(
    "ordinate::triton_decode", f"(Tensor q, Tensor k, Tensor v, {GIVEN}) -> (Tensor output, Tensor lse)"
)
BACKWARD = f"(Tensor gradient, Tensor[] saved, {GIVEN}, bool learned) -> ({', '.join(['Tensor'] * 8)})"
torch.library.define("ordinate::triton_attention_backward", BACKWARD)
torch.library.define("ordinate::triton_near_far_backward", BACKWARD)


def attention(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    """Return the output, the log-sum-exp in units of log2, and `ordinate.ops.triton.attention.Kept`."""
    return torch.ops.ordinate.triton_attention(q, k, v, others, structure, numbers)


def decode(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the first two of `attention`, for a few queries and without a gradient: the keys are split."""
    return torch.ops.ordinate.triton_decode(q, k, v, others, structure, numbers)


def near_far(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    """Return what `attention` does, for a bias that is constant from some distance on, of a causal mask."""
    return torch.ops.ordinate.triton_near_far(q, k, v, others, structure, numbers)


def attention_backward(
    gradient: Tensor,
    saved: Sequence[Tensor],
    others: Optional,
    structure: Integers,
    numbers: Sequence[float],
    learned: bool,
) -> tuple[Tensor, ...]:
    """Return the gradients of q, k, v and the first five of `others`; an empty tensor stands for none.

    Args:
        gradient: of the output.
        saved: q, k, v, and what `attention` returns.
        others: as in `attention`.
        structure: as in `attention`.
        numbers: as in `attention`.
        learned: whether the bias needs a gradient.
    """
    return torch.ops.ordinate.triton_attention_backward(gradient, saved, others, structure, numbers, learned)


def near_far_backward(
    gradient: Tensor,
    saved: Sequence[Tensor],
    others: Optional,
    structure: Integers,
    numbers: Sequence[float],
    learned: bool,
) -> tuple[Tensor, ...]:
    """Return what `attention_backward` does, for `near_far`."""
    return torch.ops.ordinate.triton_near_far_backward(gradient, saved, others, structure, numbers, learned)


def _implement(name: str, module: str) -> None:
    """Register an operator and that of its gradients: the functions `forward` and `backward` of a module beside."""

    def forward(
        q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
    ) -> tuple[Tensor, ...]:
        kernels = import_module(f"ordinate.ops.triton.{module}")
        return kernels.forward(_problem((q, k, v), others, structure, numbers))

    def backward(
        gradient: Tensor,
        saved: Sequence[Tensor],
        others: Optional,
        structure: Integers,
        numbers: Sequence[float],
        learned: bool,
    ) -> tuple[Tensor, ...]:
        kernels = import_module(f"ordinate.ops.triton.{module}")
        problem, results = _problem(saved[:3], others, structure, numbers), saved[3:]
        made = kernels.backward(gradient, problem, results, learned)
        return tuple(results[1].new_empty(0) if x is None else x for x in made)

    torch.library.impl(f"ordinate::{name}", DEVICES)(forward)
    torch.library.impl(f"ordinate::{name}_backward", DEVICES)(backward)
    torch.library.register_fake(f"ordinate::{name}")(_shaped_forward)
    torch.library.register_fake(f"ordinate::{name}_backward")(_shaped_backward)


@torch.library.impl("ordinate::triton_decode", DEVICES)
def _decode(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, Tensor]:
    from ordinate.ops.triton.decode import decode

    return decode(_problem((q, k, v), others, structure, numbers))


@torch.library.register_fake("ordinate::triton_decode")
def _shaped(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, Tensor]:
    return empty_outputs(q, v)


def _shaped_forward(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    skips = skips_keys(q, k, others[1], others[5], causal=bool(structure[0]), start=structure[1])
    return *empty_outputs(q, v), *empty_kept(q, k, others[0], skips=skips)


def _shaped_backward(
    gradient: Tensor,
    saved: Sequence[Tensor],
    others: Optional,
    structure: Integers,
    numbers: Sequence[float],
    learned: bool,
) -> tuple[Tensor, ...]:
    q, k, v, _, lse = saved[:5]
    table, slopes, sinks, lines, shares = others[:5]
    asked = (
        *(x if learned else None for x in (table, slopes)),
        sinks,
        *(x if learned else None for x in (lines, shares)),
    )
    return *empty_gradients(q, k, v), *(lse.new_empty(0 if x is None else x.shape) for x in asked)


def _problem(inputs: Sequence[Tensor], others: Optional, structure: Integers, numbers: Sequence[float]) -> Any:
    from ordinate.ops.triton.attention import Problem

    causal, start, window, origin, far = (int(x) for x in structure)
    scale, cap = numbers
    q, k, v = inputs
    table, slopes, sinks, lines, shares, q_document, k_document, knots = others
    shape = bool(causal), start, window, origin, bool(far)
    return Problem(q, k, v, table, slopes, sinks, q_document, k_document, *shape, scale, cap, lines, shares, knots)


_implement("triton_attention", "attention")
_implement("triton_near_far", "near_far")
