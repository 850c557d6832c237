"""Compiles the kernels for a single head, token, channel and key, and prints how many: run by test_gpu_code.py.

Triton makes a constant of each number that is 1, which has no type: some operations do not take it. No proof on a GPU
finds that, since its small case has other sizes.
"""

import json
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget

from benchmarks.gpu_code.compiler import Device
from ordinate.ops.triton import (
    attention,
    chunk_scan_kernels,
    decode,
    kernel,
    near_far,
    rotate,
    scans,
    vector_near_far,
    vectors,
    wkv_kernels,
)
from ordinate.ops.triton.attention import Problem
from ordinate.ops.triton.vectors import Learned, VectorProblem

compiled = []


def launch(function, grid, arguments, options):
    function.run(*arguments, grid=grid, warmup=True, **kernel.OPTIONS, **options)
    compiled.append(function.__name__)


def compile_attention():
    """One query and one key at index 1, a window of one token, a table of two entries; then a text of one token."""
    x, document = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, dtype=torch.long)
    table, slopes, sinks, lines, shares = (torch.zeros(1, size) for size in (2, 2, 1, 3, 1))
    given = Problem(x, x, x, table, None, sinks[0], document, document, False, 1, 1, 1, False, 0.5, 1.0)
    curve = {"lines": lines, "shares": shares, "knots": torch.full((1,), float("inf"))}
    plain = given._replace(table=None)
    text = plain._replace(slopes=slopes.T.contiguous(), q_document=None, k_document=None, causal=True, start=0)
    for one in (given, given._replace(far=True, q_document=None, k_document=None), plain._replace(**curve), text):
        results = attention.forward(one)
        attention.backward(x, one, results, True)
    for one in (given, text):
        decode.decode(one)
    band = torch.zeros(1, 2, 1)
    for one in (given, given._replace(far=True)):
        for held in (band, band[:, :1]):
            problem = VectorProblem(one, band, held, band)
            vectors.backward(x, problem, vectors.forward(problem), Learned(True, True, True, True))


def compile_joins():
    """Near and far keys together, of two tokens of which one has a far key; PyTorch computes that one."""
    x, band = torch.zeros(1, 1, 2, 1), torch.zeros(1, 2, 1)
    given = Problem(x, x, x, band[..., 0], None, None, None, None, True, 0, 0, 1, True, 0.5, 0.0)
    near_far.backward(x, given, near_far.forward(given), True)
    problem = VectorProblem(given, band, None, band)
    vector_near_far.backward(x, problem, vector_near_far.forward(problem), Learned(True, True, False, True))


def compile_mixers():
    x = torch.zeros(1, 1, 1, 1)
    for decay, bonus in ((x, None), (x.expand(1, 1, 1, 2).contiguous(), torch.zeros(1, 2))):
        keys = x.expand(1, 1, 1, decay.shape[3]).contiguous()
        given = scans.Problem(keys, keys, x, decay, bonus, torch.zeros(1, 1, keys.shape[3], 1))
        y, last, *saved = scans.forward(given)
        scans.backward((y, last), given, *saved)
    inputs = (x[0], x[0], x[0, 0, 0], x[0, 0, 0], torch.zeros(1, 3, 1))
    made = wkv_kernels.forward(*inputs)
    wkv_kernels.backward((made[0], made[1]), inputs, made)
    for back in (False, True):
        chunk_scan_kernels.scan(x, x[None], x[None], back)
    pair = torch.zeros(1, 1, 1, 2)
    for interleaved in (False, True):
        rotate.rotate(pair, pair, x, x, interleaved=interleaved, back=False, other=(pair, pair))


for module in [x for name, x in sys.modules.items() if name.startswith("ordinate.ops.triton.")]:
    if hasattr(module, "launch"):
        module.launch = launch
triton.runtime.driver.set_active(Device(0, GPUTarget("cuda", 90, 32)))
compile_attention()
compile_joins()
compile_mixers()
print(json.dumps([triton.__version__, sorted(set(compiled))]))
