"""A compiled model computes the same."""

import sys

import torch
from torch import Tensor

from ordinate.attention import attend
from ordinate.geometry import Geometry
from ordinate.testing.case import Case, drawn
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close


def the_compiled_scheme_equals_the_plain_one(case: Case) -> None:
    """`torch.compile` takes marking and attention as one graph; outputs and gradients agree."""
    if any(type(finder).__module__.startswith("jaxtyping") for finder in sys.meta_path):
        raise InapplicableError("types are checked at run time by jaxtyping, which torch.compile cannot trace")
    torch.compiler.reset()
    scheme = case.scheme()

    def mark(where: Geometry, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        at = scheme.at(where)
        return at.embed(x), attend(*at.encode(q, k), v, at)

    compiled = torch.compile(mark, fullgraph=True, backend="aot_eager")
    inputs = [tensor.requires_grad_() for tensor in (case.vectors(2, 7), *drawn(2, 7))]
    padded = Geometry.padded(torch.arange(7)[None] >= torch.tensor([[3], [0]]))
    for where in (case.place(Geometry.causal(7)), case.place(padded)):
        plain, made = mark(where, *inputs), compiled(where, *inputs)
        for one, other in zip((*made, *_slopes(made, inputs)), (*plain, *_slopes(plain, inputs)), strict=True):
            assert_as_close(one, other, other, what="the compiled result or gradient")


def _slopes(outs: tuple[Tensor, Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    marked, mixed = outs
    return torch.autograd.grad(marked.square().sum() + mixed.square().sum(), inputs)
