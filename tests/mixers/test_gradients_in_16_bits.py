"""Gradients in bfloat16 compared with those in float64: rounding errors must not add up with the length."""

import pytest
import torch

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.mixers._mixer import Mixer
from ordinate.schemes import NoPosition
from ordinate.testing.case import SIZES, with_noise

TOKENS = 400
# rounding changes which tokens meet in a bucket of reformer
NAMES = [name for name in catalog.names("ordinate.mixers") if name != "reformer"]
# those whose gradients are sums over many tokens that nearly cancel; the others are in the extended tier
SUMS = ("fox", "gla", "mamba", "mamba2")


def gradients(mixer, x, upstream):
    x = x.to(next(mixer.parameters()).dtype).requires_grad_()
    where = Geometry.causal(TOKENS) if mixer.causal else Geometry.full(TOKENS)
    y = mixer(x, NoPosition().at(where))[0]
    learned = {name: leaf for name, leaf in mixer.named_parameters() if leaf.requires_grad}
    found = torch.autograd.grad(y, [x, *learned.values()], upstream.to(y.dtype), materialize_grads=True)
    return dict(zip(("x", *learned), (one.double() for one in found), strict=True))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SUMS else pytest.mark.extended) for name in NAMES]
)
def test_gradients_in_bfloat16_are_those_in_float64(name):
    kind, sizes = catalog.load("ordinate.mixers", Mixer, name), {**SIZES, "layer": 1, "max_length": TOKENS}
    mixer = with_noise(lambda: kind(**catalog.bind(kind, {}, sizes)), 0).bfloat16().eval()
    x, upstream = torch.randn(2, 1, TOKENS, SIZES["width"]).bfloat16()
    found = gradients(mixer, x, upstream)
    exact = gradients(mixer.double(), x, upstream)
    for what, one in exact.items():
        # gradients that are 0 in exact arithmetic are compared with those of the tokens
        size = max(one.square().mean().sqrt().item(), 1e-3 * exact["x"].square().mean().sqrt().item())
        error = (found[what] - one).square().mean().sqrt().item()
        assert error <= 0.1 * size, f"gradient of {what}: off by {error:.3g}, its size is {size:.3g}"
