"""A compiled model computes the same."""

import sys
from collections.abc import Callable

import torch

from ordinate.geometry import Geometry
from ordinate.shapes import Tokens
from ordinate.testing.case import Case
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close


def the_compiled_model_equals_the_plain_one(case: Case) -> None:
    """`torch.compile` takes it as one graph; outputs and gradients agree."""
    if any(type(finder).__module__.startswith("jaxtyping") for finder in sys.meta_path):
        raise InapplicableError("types are checked at run time by jaxtyping, which torch.compile cannot trace")
    torch.compiler.reset()
    model, x = case.model(), case.vectors(2, 7)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    padded = Geometry.padded(torch.arange(7)[None] >= torch.tensor([[3], [0]]))
    for where in (case.place(Geometry.causal(7)), case.place(padded)):
        (plain, slope), (out, gradient) = (_run(forward, x, where) for forward in (model, compiled))
        assert_as_close(out, plain, plain, what="the compiled output")
        assert_as_close(gradient, slope, slope, what="the compiled gradient")


def _run(forward: Callable[[Tokens, Geometry], Tokens], x: Tokens, where: Geometry) -> tuple[Tokens, Tokens]:
    x = x.clone().requires_grad_()
    out = forward(x, where)
    return out, torch.autograd.grad(out.square().sum(), x)[0]
