"""Which kernels a call launches on a class of GPU, and which loops over tiles they enter: nothing is computed."""

import ast
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch

from ordinate.attention._attend import BACKENDS
from ordinate.ops.triton import attention, decode, near_far, needed, ranges, vector_near_far, vectors
from ordinate.ops.triton.fused import Fused

# the functions of `ordinate.ops.triton.bands` that compute ranges
BAND_RANGES = ("band_bounds", "key_bands", "query_bands")
LAUNCHERS = (attention, decode, needed, near_far, vector_near_far, vectors)


class Range(SimpleNamespace):
    """Stands for triton.language in functions of numbers."""

    @staticmethod
    def load(place):
        raise AssertionError("ranges without spans read nothing")

    minimum, maximum = staticmethod(min), staticmethod(max)
    where = staticmethod(lambda holds, one, other: one if holds else other)
    cdiv = staticmethod(lambda x, size: -(-x // size))


def functions_of(*names):
    """The functions of the kernels' files that compute ranges of tiles, for Python's integers."""
    space = {"tl": Range, "kernel": lambda function: function, "LOG2E": 1.0, "NamedTuple": object, "Any": object}
    for name in names:
        tree = ast.parse(Path(ranges.__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
        tree.body = [
            x for x in tree.body if isinstance(x, ast.FunctionDef) and (name == "ranges" or x.name in BAND_RANGES)
        ]
        for function in tree.body:
            for argument in function.args.args:
                argument.annotation = None
        exec(compile(tree, name, "exec"), space)
    return SimpleNamespace(**space)


RANGES = functions_of("ranges", "bands")


def launches(backend, call, device, *, gradients):
    """Each kernel that a backend launches for a call, with the loops that its programs enter.

    Args:
        backend: name of the backend.
        call: the call; its gradients are those of everything that needs one.
        device: class of the GPU.
        gradients: whether the backward pass is run.
    """
    found = {}

    def record(function, grid, arguments, options):
        key = function.__name__, described(arguments), tuple(options.items())
        found.setdefault(key, set()).update(loops(function.__name__, grid, arguments))

    with ExitStack() as stack:
        for module in LAUNCHERS:
            stack.enter_context(patch.object(module, "launch", record))
        for module in (attention, vectors):
            stack.enter_context(patch.object(module, "device_class", lambda _: device))
        stack.enter_context(patch.object(near_far, "fused_attention", lambda _: NOTHING_FUSED))
        with torch.set_grad_enabled(gradients):
            out = BACKENDS[backend].run(call)
            if gradients:
                learned = [x for x in (call.q, call.k, call.v, *call.at.scheme.parameters()) if x.requires_grad]
                torch.autograd.grad(out, learned, torch.zeros_like(out), allow_unused=True)
    return found


NOTHING_FUSED = Fused(
    lambda q, k, v, scale: (torch.empty_like(q), q.new_zeros(q.shape[:3], dtype=torch.float32)),
    lambda gradient, q, k, v, out, lse, scale: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)),
)


def described(x):
    """What Triton compiles a kernel for: dtypes, and which arguments there are; numbers apart, but for forms."""
    if isinstance(x, torch.Tensor):
        return str(x.dtype)
    if isinstance(x, tuple) and hasattr(x, "_fields") and type(x).__name__ == "Form":
        return tuple(x)
    if isinstance(x, tuple):
        return tuple(described(part) for part in x)
    return None if x is None else type(x).__name__


def loops(name, grid, arguments):
    """Names of the loops over tiles that some program of a launch enters."""
    parts = {type(x).__name__: x for x in arguments if isinstance(x, tuple)}
    form, where, bias = parts.get("Form"), parts.get("Structure"), parts.get("Bias")
    if name == "join_chunks":
        return {"several steps"} if arguments[4][2] > decode.JOINED.value else set()
    if name == "attend_chunk":
        return set()
    walks = {
        "attention_forward": of_queries,
        "attention_backward_queries": of_queries,
        "attention_backward_keys": of_keys,
        "vector_forward": of_band_queries,
        "vector_backward_queries": of_band_queries,
        "vector_backward_keys": of_band_keys,
    }
    if name not in walks:
        return set()
    # spans leave out tiles, and no loop but for one that has none left
    where = where._replace(spans=None)
    return {said for tile in range(grid[0]) for said in walks[name](tile, bias, where, form)}


def of_queries(tile, bias, where, form):
    low, first, second, third, end, high = RANGES.key_range(tile * form.rows, (0, 0), bias, where, form)
    if not form.documents and first < second:
        yield "past"
    if form.far and not form.causal and not form.documents and third < end:
        yield "future"
    yield from masked((low, first, second, third, end, high), form.columns)


def of_keys(tile, bias, where, form):
    low, first, second, third, end, high = RANGES.query_range(tile * form.columns, (0, 0), bias, where, form)
    if not form.documents and form.far:
        if third < end:
            yield "past"
        if not form.causal and first < second:
            yield "future"
    elif not form.documents and first < end:
        yield "whole"
    yield from masked((low, first, second, third, end, high), form.rows)


def masked(bounds, size):
    count = RANGES.tile_count(bounds, size)
    if count:
        yield "masked"


def of_band_queries(tile, bias, where, form):
    low, begin, stop, high = RANGES.key_bands(tile * form.rows, (0, 0), bias, where, form)
    if form.far and low < begin:
        yield "past"
    if form.far and not form.causal and stop < high:
        yield "future"
    if begin < stop:
        yield "near"


def of_band_keys(tile, bias, where, form):
    low, begin, stop, high = RANGES.query_bands(tile * form.rows, (0, 0), bias, where, form)
    whole = high
    if form.far:
        if not (form.windowed or form.documents):
            whole = max(stop, high // form.rows * form.rows)
        if stop < whole:
            yield "past"
        if not form.causal and low < begin:
            yield "future"
    if begin < stop or whole < high:
        yield "near"


def not_in(one, other):
    """What of some launches others do not have."""
    missing = {key: None for key in one if key not in other}
    return missing | {key: loops - other[key] for key, loops in one.items() if key in other and loops - other[key]}
