"""Compiles the kernels of attention with a bias by offset: whole texts, near keys, curves, and what lies beside."""

import torch

from benchmarks.gpu_code.compiler import CLASSES, REACH, TOKENS, OnCode, causal_problem, recorder, silent, stand_for
from benchmarks.gpu_code.vectors import name_of_sums
from ordinate.attention.backends.near_far import MAX_CHANNELS as NEAR_FAR_CHANNELS
from ordinate.ops.triton.tiles import tiles

# the same of Shaw's vectors by default
CLIPPED = 16
# of FIRE's bias by default, whose hidden layer has 32 units
PIECES = 64


def compiled(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels of attention with a learned T5 bias and grouped heads: forward, backward and decoding.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: called with the name and the options of each kernel, and what compiles it.
    """
    from ordinate.ops.triton import attention, decode

    stand_for(architecture, attention)
    attention.launch = decode.launch = recorder(on_code)
    problem = causal_problem(dtype, channels, table=torch.zeros(2, REACH + 1), origin=REACH, far=True)
    results = attention.forward(problem)
    attention.backward(torch.zeros_like(results[0]), problem, results, True)
    newest = problem._replace(q=problem.q[:, :, -1:], start=TOKENS - 1, origin=REACH - TOKENS + 1)
    decode.decode(newest)


def compiled_near(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels of near keys, forward and backward, where their tiles are not those of whole texts.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention, near_far, vectors

    kind = CLASSES[architecture]
    if dtype == torch.float32 or tiles(kind, dtype, channels, window=REACH) == tiles(kind, dtype, channels):
        return
    stand_for(architecture, attention, vectors)
    attention.launch = recorder(on_code, "near keys, t5: ")
    near = near_far.near(causal_problem(dtype, channels, table=torch.zeros(2, REACH + 1), origin=REACH, far=True))
    results = attention.forward(near)
    attention.backward(torch.zeros_like(results[0]), near, results, True)
    attention.launch, vectors.launch = silent, recorder(on_code, "near keys, shaw: ", name_of_sums)
    asked = torch.zeros(1, CLIPPED + 1, channels)
    near = near_far.near(causal_problem(dtype, channels, origin=CLIPPED, far=True))
    problem = vectors.VectorProblem(near, asked, None, asked)
    results = vectors.forward(problem)
    vectors.backward(torch.zeros_like(results[0]), problem, results, vectors.Learned(False, True, False, True))


def compiled_curve(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile the kernels with a bias that is a curve of the distance, as FIRE's with 32 units: forward and backward.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention

    stand_for(architecture, attention)
    attention.launch = recorder(on_code, "fire: ")
    lines, shares, knots = torch.zeros(2, 1 + 2 * PIECES), torch.zeros(1, TOKENS), torch.zeros(PIECES)
    problem = causal_problem(dtype, channels, lines=lines, shares=shares, knots=knots)
    results = attention.forward(problem)
    attention.backward(torch.zeros_like(results[0]), problem, results, True)


def compiled_beside(architecture: str, dtype: torch.dtype, channels: int, on_code: OnCode) -> None:
    """Compile what goes through memory once: the keys that ALiBi needs, and near and far keys put together.

    Args:
        architecture: a key of `CLASSES`.
        dtype: dtype of queries, keys and values.
        channels: channels of a head.
        on_code: as in `compiled`.
    """
    from ordinate.ops.triton import attention, near_far, needed, vector_near_far, vectors

    stand_for(architecture, attention, vectors)
    attention.launch = vectors.launch = silent
    needed.launch = recorder(on_code, "alibi: ")
    problem = causal_problem(dtype, channels, origin=REACH, far=True)
    attention.forward(problem._replace(slopes=torch.ones(2, 2)))
    if dtype == torch.float32 or channels > NEAR_FAR_CHANNELS:
        return
    near_far.launch = recorder(on_code, "t5, near and far: ")
    near_far.forward(problem._replace(table=torch.zeros(2, REACH + 1)))
    near_far.launch = vector_near_far.launch = recorder(on_code, "shaw, near and far: ")
    near = torch.zeros(1, REACH + 1, channels)
    given = vectors.VectorProblem(problem, near, None, near)
    results = vector_near_far.forward(given)
    vector_near_far.backward(torch.zeros_like(results[0]), given, results, vectors.Learned(False, True, False, True))
