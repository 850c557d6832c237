"""Compiles the kernels of attention with a vector for each offset."""

from typing import Any

import torch

from benchmarks.gpu_code.compiler import REACH, TOKENS, OnCode, causal_problem, recorder, silent, stand_for
from ordinate.ops.triton.vector_tiles import MAX_VALUE_CHANNELS


def compiled_vectors(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels for vectors by offset, as Shaw, Transformer-XL and DeBERTa have them: forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention, vectors

    stand_for(architecture, attention, vectors)
    near, all_offsets, one = (torch.zeros(2, entries, channels) for entries in (REACH + 1, TOKENS, 1))
    numbers = torch.zeros(2, TOKENS)
    # where heads are too wide for vectors beside values, Shaw has none
    values = near if channels <= MAX_VALUE_CHANNELS else None
    for scheme, origin, table, given in (
        ("shaw", REACH, None, (near, None, values)),
        ("transformer_xl", TOKENS - 1, numbers, (all_offsets, one, None)),
        ("deberta", REACH, None, (near, near, None)),
    ):
        attention.launch, vectors.launch = silent, recorder(on_code, f"{scheme}: ", name_of_sums)
        # under a causal mask the vectors of Shaw and DeBERTa end behind, and with the query's own key
        base = causal_problem(dtype, channels, table=table, origin=origin, far=table is None)
        problem = vectors.VectorProblem(base, *given)
        results = vectors.forward(problem)
        vectors.backward(torch.zeros_like(results[0]), problem, results, vectors.Learned(True, True, True, True))


def name_of_sums(function: Any, arguments: tuple[Any, ...]) -> str:
    """Name a kernel, and of the sums of vectors the term."""
    name = function.__name__
    return name + ("_queries", "_keys", "_values")[arguments[-2]] if name == "sum_vectors" else name
