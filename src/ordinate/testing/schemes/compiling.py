"""Compatibility with torch.compile."""

import sys

import torch
from torch import Tensor
from torch._dynamo.utils import counters

from ordinate.attention._attend import attend
from ordinate.core.geometry import Geometry
from ordinate.testing.case import SchemeCase, random_qkv
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close

LENGTHS = (7, 12, 29)


def the_compiled_scheme_equals_the_eager_one(case: SchemeCase) -> None:
    """`torch.compile` captures encoding and attention in one graph for all lengths; outputs and gradients agree."""
    if any(type(finder).__module__.startswith("jaxtyping") for finder in sys.meta_path):
        raise InapplicableError("types are checked at run time by jaxtyping, which torch.compile cannot trace")
    torch.compiler.reset()
    scheme = case.scheme()

    def mark(where: Geometry, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        at = scheme.at(where)
        return at.embed(x), attend(q, k, v, at)

    before = counters["stats"]["unique_graphs"]
    compiled = torch.compile(mark, fullgraph=True, dynamic=True, backend="aot_eager")
    padded = Geometry.padded(torch.arange(7)[None] >= torch.tensor([[3], [0]]))
    for where in (*map(Geometry.causal, LENGTHS), padded):
        if where is padded:
            # lengths share a graph; one more is allowed for a scheme with a fast path for some lengths
            graphs = counters["stats"]["unique_graphs"] - before
            assert graphs <= 2, f"{len(LENGTHS)} lengths were compiled to {graphs} graphs"
        where, tokens = case.with_axes(where), where.shape[0]
        inputs = [tensor.requires_grad_() for tensor in (case.embeddings(2, tokens), *random_qkv(2, tokens))]
        plain, made = mark(where, *inputs), compiled(where, *inputs)
        for one, other in zip((*made, *_grads(made, inputs)), (*plain, *_grads(plain, inputs)), strict=True):
            assert_as_close(one, other, other, what=f"the compiled result or gradient of {tokens} tokens")


def _grads(outs: tuple[Tensor, Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    marked, mixed = outs
    return torch.autograd.grad(marked.square().sum() + mixed.square().sum(), inputs)
