"""Attention with a vector for each offset by Triton as operators that torch.compile does not look into.

They are defined without Triton, which is imported when one of them runs.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ordinate.ops.triton.operators import DEVICES, MADE, Integers, Optional
from ordinate.ops.triton.outputs import empty_gradients, empty_kept, empty_outputs

# others: table, sinks, vectors for queries, keys and values, documents of queries and of keys; structure: causal,
# start, window, origin, far; numbers: scale, cap
GIVEN = "Tensor?[] others, SymInt[] structure, float[] numbers"

torch.library.define("ordinate::triton_vectors", f"(Tensor q, Tensor k, Tensor v, {GIVEN}) -> ({MADE})")
torch.library.define(
    "ordinate::triton_near_far_vectors",
    f"(Tensor q, Tensor k, Tensor v, {GIVEN}) -> ({MADE}, Tensor far, Tensor far_lse)",
)
BACKWARD = f"(Tensor gradient, Tensor[] saved, {GIVEN}, bool[] learned) -> ({', '.join(['Tensor'] * 8)})"
torch.library.define("ordinate::triton_vectors_backward", BACKWARD)
torch.library.define("ordinate::triton_near_far_vectors_backward", BACKWARD)


def attention(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    """Return output, log-sum-exp in units of log2, and `Kept`, as `ordinate.ops.triton.operators.attention` does."""
    return torch.ops.ordinate.triton_vectors(q, k, v, others, structure, numbers)


def near_far(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    """Return what `attention` does, for vectors constant from some distance on; then output and lse of far keys."""
    return torch.ops.ordinate.triton_near_far_vectors(q, k, v, others, structure, numbers)


def attention_backward(
    gradient: Tensor,
    saved: Sequence[Tensor],
    others: Optional,
    structure: Integers,
    numbers: Sequence[float],
    learned: Sequence[bool],
) -> tuple[Tensor, ...]:
    """Return the gradients of q, k, v, table, sinks and the vectors; an empty tensor stands for none.

    Args:
        gradient: of the output.
        saved: q, k, v, and what `attention` returns.
        others: as in `attention`.
        structure: as in `attention`.
        numbers: as in `attention`.
        learned: whether the table, and the vectors for queries, keys and values, need a gradient.
    """
    return torch.ops.ordinate.triton_vectors_backward(gradient, saved, others, structure, numbers, learned)


def near_far_backward(
    gradient: Tensor,
    saved: Sequence[Tensor],
    others: Optional,
    structure: Integers,
    numbers: Sequence[float],
    learned: Sequence[bool],
) -> tuple[Tensor, ...]:
    """Return what `attention_backward` does, for `near_far`, whose seven results are saved."""
    return torch.ops.ordinate.triton_near_far_vectors_backward(gradient, saved, others, structure, numbers, learned)


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
        learned: Sequence[bool],
    ) -> tuple[Tensor, ...]:
        from ordinate.ops.triton.vectors import Learned

        kernels = import_module(f"ordinate.ops.triton.{module}")
        problem, results = _problem(saved[:3], others, structure, numbers), saved[3:]
        made = kernels.backward(gradient, problem, results, Learned(*learned))
        return tuple(results[1].new_empty(0) if x is None else x for x in made)

    torch.library.impl(f"ordinate::{name}", DEVICES)(forward)
    torch.library.impl(f"ordinate::{name}_backward", DEVICES)(backward)
    torch.library.register_fake(f"ordinate::{name}_backward")(_shaped_backward)


@torch.library.register_fake("ordinate::triton_vectors")
def _shaped(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    return *empty_outputs(q, v), *empty_kept(q, k, others[0], skips=False)


@torch.library.register_fake("ordinate::triton_near_far_vectors")
def _shaped_near_far(
    q: Tensor, k: Tensor, v: Tensor, others: Optional, structure: Integers, numbers: Sequence[float]
) -> tuple[Tensor, ...]:
    farther = empty_outputs(q[:, :, structure[3] :], v)
    return *_shaped(q, k, v, others, structure, numbers), *farther


def _shaped_backward(
    gradient: Tensor,
    saved: Sequence[Tensor],
    others: Optional,
    structure: Integers,
    numbers: Sequence[float],
    learned: Sequence[bool],
) -> tuple[Tensor, ...]:
    (q, k, v, _, lse), (table, sinks, *vectors) = saved[:5], others[:5]
    wanted = (x if need else None for x, need in zip((table, *vectors), learned, strict=True))
    table, *vectors = wanted
    return *empty_gradients(q, k, v), *(lse.new_empty(0 if x is None else x.shape) for x in (table, sinks, *vectors))


def _problem(inputs: Sequence[Tensor], others: Optional, structure: Integers, numbers: Sequence[float]) -> Any:
    from ordinate.ops.triton.attention import Problem
    from ordinate.ops.triton.vectors import VectorProblem

    causal, start, window, origin, far = (int(x) for x in structure)
    scale, cap = numbers
    q, k, v = inputs
    table, sinks, *vectors, q_document, k_document = others
    shape = bool(causal), start, window, origin, bool(far)
    base = Problem(q, k, v, table, None, sinks, q_document, k_document, *shape, scale, cap)
    return VectorProblem(base, *vectors)


_implement("triton_vectors", "vectors")
_implement("triton_near_far_vectors", "vector_near_far")
