"""Gradients reach all parameters and are correct."""

import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ordinate.core.geometry import Geometry
from ordinate.testing.assert_close import assert_equal_up_to_order, assert_max_close
from ordinate.testing.mixer import MixerCase

TOKENS = 9


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


def checkpointing_changes_no_gradient(case: MixerCase) -> None:
    """Gradients under torch.utils.checkpoint equal those without; saved tensors are read once."""
    for where in case.geometries(TOKENS):
        results = []
        for mix in (case.output, lambda x, where: checkpoint(case.output, x, where, use_reentrant=False)):
            x = case.tokens(2, TOKENS).requires_grad_()
            results += torch.autograd.grad(mix(x, where).square().sum(), x)
        assert_equal_up_to_order(results[1], results[0], "the gradient under checkpointing")


def its_gradients_are_right(case: MixerCase) -> None:
    """Gradients by inputs and all parameters agree with finite differences in float64."""
    for run, leaves in _functions(case, 6):
        assert torch.autograd.gradcheck(run, leaves, fast_mode=True), "its gradient is wrong"


def its_second_derivatives_are_right(case: MixerCase) -> None:
    """Second derivatives agree with finite differences in float64: none is dropped silently, also beside padding."""
    # packing puts padding beside the first document, a vector of zeros, where a norm has no second derivative
    packed = [Geometry.packed([1, 3], causal=where.is_causal) for where in case.geometries(4)]
    for run, leaves in _functions(case, 4, packed):
        # one direction in the space of all inputs: its product with the Hessian needs two gradients
        generator, step = torch.Generator().manual_seed(3), 1e-6
        drawn = [torch.randn(x.shape, generator=generator, dtype=x.dtype, device="cpu") for x in leaves]
        along = [one.to(x.device) for one, x in zip(drawn, leaves, strict=True)]
        near = [
            _gradient(run, [(x.detach() + side * one).requires_grad_() for x, one in zip(leaves, along, strict=True)])
            for side in (step, -step)
        ]
        first = torch.autograd.grad(run(*leaves), leaves, create_graph=True, materialize_grads=True)
        total = sum(((x * one).sum() for x, one in zip(first, along, strict=True)), leaves[0].new_zeros(()))
        assert total.requires_grad, "second derivatives are dropped: its gradients have no graph"
        made = torch.cat([x.flatten() for x in torch.autograd.grad(total, leaves, materialize_grads=True)])
        assert_max_close(made, (near[0] - near[1]) / (2 * step), 1e-5, "second derivatives")


def per_sample_gradients_are_those_of_each_sample(case: MixerCase) -> None:
    """torch.func.vmap(grad(mixer)), which custom autograd functions and branches by value break."""
    for run, (_, *values) in _functions(case, 5):
        x = case.tokens(2, 5)
        with warnings.catch_warnings():
            # PyTorch warns of operations that it maps one sample at a time
            warnings.simplefilter("ignore")
            made = torch.func.vmap(torch.func.grad(lambda x, run=run, values=values: run(x[None], *values)))(x)
        alone = [row.requires_grad_() for row in x.split(1)]
        exact = torch.cat([torch.autograd.grad(run(row, *values), row)[0] for row in alone])
        assert_equal_up_to_order(made, exact, "the gradient of each sample")


def _gradient(run: Callable[..., Tensor], leaves: list[Tensor]) -> Tensor:
    return torch.cat([x.flatten() for x in torch.autograd.grad(run(*leaves), leaves, materialize_grads=True)])


def _functions(
    case: MixerCase, tokens: int, others: Sequence[Geometry] = ()
) -> Iterator[tuple[Callable[..., Tensor], list[Tensor]]]:
    """For each form and the others, the mixer projected to one number as a function of inputs and parameters."""
    mixer, x = case.mixer(), case.tokens(1, tokens)
    names = [name for name, parameter in mixer.named_parameters() if parameter.requires_grad]
    values = [parameter.detach() for parameter in mixer.parameters() if parameter.requires_grad]
    leaves = [tensor.clone().requires_grad_() for tensor in (x, *values)]
    for where in (*case.geometries(tokens), *others):
        at = case.scheme().at(where)

        def run(x: Tensor, *values: Tensor, at: object = at) -> Tensor:
            out, _ = torch.func.functional_call(mixer, dict(zip(names, values, strict=True)), (x, at))
            # projected onto a fixed direction: one scalar output needs few finite differences
            return (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).cos().reshape(out.shape)).sum()

        yield run, leaves
