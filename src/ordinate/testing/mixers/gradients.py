"""Gradients reach all parameters and are correct."""

import torch
from torch import Tensor

from ordinate.testing.mixer import MixerCase


def every_parameter_gets_a_gradient(case: MixerCase) -> None:
    """Each trained parameter gets a finite gradient that is not all zero, in some form of the mixer."""
    mixer = case.mixer()
    trained = [(name, parameter) for name, parameter in mixer.named_parameters() if parameter.requires_grad]
    case.skip_unless(bool(trained), "it has no parameters that are trained")
    total: Tensor = sum(
        (case.output(case.tokens(2, 40), where, mixer).square().sum() for where in case.geometries(40)),
        torch.zeros((), dtype=torch.float64),
    )
    total.backward()
    for name, parameter in trained:
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert (parameter.grad != 0).any(), f"the gradient of {name} is zero"


def its_gradients_are_right(case: MixerCase) -> None:
    """Gradients by inputs and all parameters agree with finite differences in float64."""
    mixer, x = case.mixer(), case.tokens(1, 6)
    names = [name for name, parameter in mixer.named_parameters() if parameter.requires_grad]
    values = [parameter.detach() for parameter in mixer.parameters() if parameter.requires_grad]
    leaves = [tensor.clone().requires_grad_() for tensor in (x, *values)]
    for where in case.geometries(6):
        at = case.scheme().at(where)

        def run(x: Tensor, *values: Tensor, at: object = at) -> Tensor:
            out, _ = torch.func.functional_call(mixer, dict(zip(names, values, strict=True)), (x, at))
            # projected onto a fixed direction: one scalar output needs few finite differences
            return (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).cos().reshape(out.shape)).sum()

        assert torch.autograd.gradcheck(run, leaves, fast_mode=True), "its gradient is wrong"
