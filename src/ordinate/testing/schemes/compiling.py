"""A compiled model computes the same."""

import sys

import torch

from ordinate.geometry import Geometry
from ordinate.testing.case import Case
from ordinate.testing.check import Skipped
from ordinate.testing.tolerance import assert_as_close


def the_compiled_model_equals_the_plain_one(case: Case) -> None:
    """`torch.compile` takes it as one graph; outputs and gradients agree."""
    if any(type(finder).__module__.startswith("jaxtyping") for finder in sys.meta_path):
        raise Skipped("types are checked at run time by jaxtyping, which torch.compile cannot trace")
    torch.compiler.reset()
    model, where = case.model(), case.place(Geometry.causal(7))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    for forward in (model, compiled):
        x = case.vectors(2, 7).requires_grad_()
        out = forward(x, where)
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        results.append((out, gradient))
    (plain, slope), (out, gradient) = results
    assert_as_close(out, plain, plain, what="the compiled output")
    assert_as_close(gradient, slope, slope, what="the compiled gradient")
