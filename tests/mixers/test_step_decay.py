"""Step sizes and log decays of tokens."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ordinate.mixers._step_decay import StepDecay


def gradient_layouts():
    """Strides of the gradients of the tokens by step sizes and by log decays."""
    made = StepDecay(3, (1.0, 16.0))
    x = torch.ones(2, 5, 3, requires_grad=True)
    upstream = torch.ones(2, 3, 5)
    return [torch.autograd.grad(out, x, upstream, retain_graph=True)[0].stride() for out in made(x)]


def test_the_layout_of_gradients_is_the_one_that_compilers_expect():
    # a layout that differs from that of tensors without values fails in a compiled graph, in a view of it
    real = gradient_layouts()
    with FakeTensorMode():
        assert gradient_layouts() == real
