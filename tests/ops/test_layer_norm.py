import pytest
import torch
from torch import nn

from ordinate.ops.layer_norm import ZeroCentredLayerNorm


def by_the_formula(norm, x):
    """LayerNorm in float64, with the factor 1 + weight."""
    x, weight = x.double(), norm.weight.double()
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    return scaled * (1 + weight) + (0 if norm.bias is None else norm.bias.double())


def drawn(kind, *, bias=True):
    norm = ZeroCentredLayerNorm(63, eps=1e-3, bias=bias).to(kind)
    assert not norm.weight.any()
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, -2e-3, 2e-3)
    return norm, torch.randn(5, 63).to(kind)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_it_is_the_formula_and_loses_no_digits_of_the_weight(kind, bias):
    norm, x = drawn(kind, bias=bias)
    out, exact = norm(x), by_the_formula(norm, x)
    assert out.dtype == kind
    assert (out.double() - exact).abs().max() <= 4 * torch.finfo(kind).eps * exact.abs().max()
    if kind.itemsize == 2:
        # 1 + weight is 1 in 16 bits for most of these
        lost = nn.functional.layer_norm(x, (63,), 1 + norm.weight, norm.bias, norm.eps)
        assert (lost != out).any()


def test_first_and_second_derivatives_are_those_of_the_formula():
    norm, x = drawn(torch.float64)
    given = x.requires_grad_()
    assert torch.autograd.gradcheck(norm, (given,))
    assert torch.autograd.gradgradcheck(norm, (given,))
    weights = tuple(norm.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(norm(x).square().sum(), weights),
        torch.autograd.grad(by_the_formula(norm, x).square().sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_it_starts_as_a_layer_norm_and_again_after_a_reset():
    norm, x = drawn(torch.float32)
    norm.reset_parameters()
    assert torch.equal(norm(x), nn.LayerNorm(63, eps=1e-3)(x))
