"""The skewing of tiles, in processes of their own: Triton interprets or compiles, not both."""

import re

import pytest

from tests.ops.triton.interpreter import installed, interpret_tests
from tests.ops.triton.test_gpu_code import OLDEST, printed, with_oldest

# compiles a kernel for vectors by offset for an H200: what it does, in the layouts that Triton has chosen
PROGRAM = """
import json, sys, torch
from benchmarks.gpu_code import compiler, vectors
from ordinate.ops.triton import kernel

def code_of(function, grid, arguments, options):
    found.append(function.run(*arguments, grid=grid, warmup=True, **kernel.OPTIONS, **options).asm["ttgir"])

found, compiler.code_of = [], code_of
vectors.compiled_vectors("sm_90", torch.bfloat16, 64, lambda name, tile, compile: name == sys.argv[1] and compile())
print(json.dumps(found))
"""


@installed
def test_it_agrees_with_the_formula():
    interpret_tests("skewing_interpreted.py")


@pytest.mark.extended
@installed
@pytest.mark.parametrize(
    "before", [pytest.param([], id="newest"), pytest.param([OLDEST], id="oldest", marks=with_oldest)]
)
@pytest.mark.parametrize("name", ["vector_forward", "vector_backward_queries", "sum_vectors_queries"])
def test_tiles_are_skewed_in_the_layout_of_the_tensor_cores(name, before):
    # no test of numbers tells another, to which and from which Triton would move tiles
    (code,) = printed("-c", PROGRAM, f"transformer_xl: {name}", before=before)
    gathers = re.findall(r"tt\.gather .*", code)
    assert len(gathers) == (1 if name == "vector_forward" else 2)
    assert all("axis = 0" in x and "efficient_layout" not in x for x in gathers)
    loop = code[code.index("scf.for") : code.rindex("scf.yield")]
    moved = re.findall(r"ttg\.convert_layout .*tensor<64x64xf32.*", loop)
    assert not [x for x in moved if "#blocked" in x]
