"""Step sizes and log decays of tokens."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ordinate.mixers._step_decay import StepDecay


def gradient_layouts(channels):
    """Strides of the gradients of the tokens by step sizes and by log decays."""
    made, more = StepDecay(3, (1.0, 16.0), channels=channels), () if channels is None else (channels,)
    x = torch.ones(2, 5, 3, *more, requires_grad=True)
    upstream = torch.ones(2, 3, 5, *more)
    return [torch.autograd.grad(out, x, upstream, retain_graph=True)[0].stride() for out in made(x)]


@pytest.mark.parametrize("channels", [None, 4])
def test_the_layout_of_gradients_is_the_one_that_compilers_expect(channels):
    # a layout that differs from that of tensors without values fails in a compiled graph, in a view of it
    real = gradient_layouts(channels)
    with FakeTensorMode():
        assert gradient_layouts(channels) == real
