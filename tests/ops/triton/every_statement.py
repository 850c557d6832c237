"""Compiles the kernels in all forms of call, and prints the statements that no form has: run by test_gpu_code.py.

The configurations are those of Triton's interpreter, which are small, and so compile fast.
"""

import ast
import json
from itertools import product
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import code_generator

from benchmarks.gpu_code.compiler import Device
from ordinate.ops.triton import (
    attention,
    chunk_scan_kernels,
    decode,
    kernel,
    near_far,
    needed,
    rotate,
    scans,
    vector_near_far,
    vectors,
    wkv_kernels,
)
from ordinate.ops.triton.attention import Problem

TOKENS = 96
# of a table or of vectors, before and after the own position
REACH = 20
visited = set()


class Visited(code_generator.CodeGenerator):
    """Records the statements that are compiled: those of a branch that a form excludes are not."""

    def visit(self, node):
        # Triton makes some statements itself
        if isinstance(node, ast.stmt) and hasattr(node, "lineno"):
            visited.add((Path(self.file_name).name, self.begin_line + node.lineno))
        return super().visit(node)


def compiled(function, grid, arguments, options):
    function.run(*arguments, grid=grid, warmup=True, **kernel.OPTIONS, **options)


def problems():
    """One computation of every kind of bias and visibility; with a window also soft cap, sinks and other widths."""
    table, slopes, sinks = torch.zeros(2, 2 * REACH + 1), torch.zeros(2, 2), torch.zeros(2)
    documents = torch.zeros(1, TOKENS, dtype=torch.long)
    for bias, held, causal, window in product(
        (None, "table", "slopes", "curve"), (None, documents), (True, False), (0, 30)
    ):
        # these forms have no statement of their own
        if held is not None and causal != bool(window):
            continue
        # a power of two or not
        width = 32 if window else 24
        q, k, v = (torch.zeros(1, TOKENS, heads, width, dtype=torch.float16).transpose(1, 2) for heads in (2, 1, 1))
        biases = table if bias == "table" else None, slopes if bias == "slopes" else None
        formula = (sinks, 2.0) if window else (None, 0.0)
        structure = causal, 0, window, REACH, bias == "table"
        # without a window one piece
        pieces = 4 if window else 1
        curve = (
            (torch.zeros(2, 1 + 2 * pieces), torch.zeros(1, TOKENS), torch.zeros(pieces)) if bias == "curve" else ()
        )
        yield Problem(q, k, v, *biases, formula[0], held, held, *structure, width**-0.5, formula[1], *curve)


def compile_vectors(base):
    """Vectors for all terms, with ends or without, and one for all offsets."""
    some, one = torch.zeros(2, 2 * REACH + 1, base.q.shape[3]), torch.zeros(2, 1, base.q.shape[3])
    for given, far in (((some, some, some), True), ((some, one, None), base.table is not None)):
        table = torch.zeros(2, 2 * REACH + 1) if given[1] is one else base.table
        problem = vectors.VectorProblem(base._replace(table=table, far=far), *given)
        results = vectors.forward(problem)
        vectors.backward(torch.zeros_like(results[0]), problem, results, vectors.Learned(True, True, True, True))


def compile_far(width):
    """Near and far keys, of a table and of vectors; and the instructions of GPUs of NVIDIA."""
    q, k, v = (torch.zeros(1, TOKENS, heads, width, dtype=torch.float16).transpose(1, 2) for heads in (2, 1, 1))
    shape = True, 0, 0, REACH, True, width**-0.5, 0.0
    base = Problem(q, k, v, torch.zeros(2, REACH + 1), None, None, None, None, *shape)
    results = near_far.forward(base)
    near_far.backward(torch.zeros_like(results[0]), base, results, True)
    for some in (None, torch.zeros(1, REACH + 1, width)):
        given = vectors.VectorProblem(base, torch.zeros(2, REACH + 1, width), None, some)
        results = vector_near_far.forward(given)
        learned = vectors.Learned(True, True, False, True)
        vector_near_far.backward(torch.zeros_like(results[0]), given, results, learned)
    describe = attention.describe
    attention.describe = lambda given: describe(given)._replace(nvidia=True)
    attention.forward(base)
    vectors.backward(torch.zeros_like(results[0]), given, vectors.forward(given), vectors.Learned(*4 * [True]))
    attention.describe = describe


def compile_rotations():
    x = torch.zeros(1, 2, TOKENS, 24, dtype=torch.float16)
    for interleaved, back, heads, pairs in product((False, True), (False, True), (1, 2), (12, 8)):
        waves = torch.zeros(2, 1, heads, TOKENS, pairs).unbind()
        rotate.rotate(x, torch.empty_like(x), *waves, interleaved=interleaved, back=back)
        if heads == 1:
            both = x, torch.empty_like(x)
            rotate.rotate(x, torch.empty_like(x), *waves, interleaved=interleaved, back=back, other=both)


def compile_recurrences():
    x, start = torch.zeros(1, 2, TOKENS, 24), torch.zeros(1, 2, 24, 24)
    for shared, bonus in product((False, True), (None, torch.zeros(2, 24))):
        given = scans.Problem(x, x, x, x[..., :1] if shared else x, bonus, start)
        y, last, *saved = scans.forward(given)
        scans.backward((torch.zeros_like(y), torch.zeros_like(last)), given, *saved)
    inputs = (torch.zeros(1, TOKENS, 24), *torch.zeros(2, 24), torch.zeros(1, 3, 24))
    inputs = inputs[0], *inputs
    # fewer rows and columns than a product takes
    narrow = torch.zeros(1, 2, 5, 3)
    for back in (False, True):
        chunk_scan_kernels.scan(narrow, torch.zeros(1, 2, 1, 5, 5), narrow[:, :, None], back)
    made = wkv_kernels.forward(*inputs)
    wkv_kernels.backward((torch.zeros_like(made[0]), torch.zeros_like(made[1])), inputs, made)


def statements():
    """All statements of kernels but docstrings: (file, line)."""
    for path in Path(kernel.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                getattr(x, "id", "") == "kernel" for x in node.decorator_list
            ):
                inside = (x for part in node.body[1:] for x in ast.walk(part) if isinstance(x, ast.stmt))
                yield from ((path.name, x.lineno) for x in inside)


code_generator.CodeGenerator = Visited
triton.runtime.driver.set_active(Device(0, GPUTarget("cuda", 90, 32)))
for module in (
    attention,
    decode,
    vectors,
    rotate,
    scans,
    wkv_kernels,
    chunk_scan_kernels,
    needed,
    near_far,
    vector_near_far,
):
    module.launch = compiled
for base in problems():
    results = attention.forward(base)
    attention.backward(torch.zeros_like(results[0]), base, results, True)
    if base.lines is not None:
        continue
    decode.decode(base._replace(q=base.q[:, :, -1:], start=TOKENS - 1))
    if base.slopes is None:
        compile_vectors(base)
for width in (24, 32):
    compile_far(width)
compile_rotations()
compile_recurrences()
every = set(statements())
print(json.dumps([triton.__version__, len(every), sorted(every - visited)]))
