import math

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.channelwise_shared_qk import ChannelwiseSharedQK
from ordinate.mixers.shared_qk import SharedQK
from ordinate.mixers.softmax import Softmax
from ordinate.schemes import Alibi, NoPosition, Rope

WHERES = [Geometry.causal(7), Geometry.full(7), Geometry.packed([3, 4])]


def stirred() -> ChannelwiseSharedQK:
    mixer = ChannelwiseSharedQK(width=24, heads=4).double()
    torch.nn.init.normal_(mixer.coefficients)
    return mixer


@pytest.mark.parametrize("where", WHERES)
def test_it_is_the_formula_forward_and_backward(where):
    mixer, at = stirred(), NoPosition().at(where)
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    heads = []
    keys, values = (part.split(6, -1) for part in (x @ mixer.project.weight.T).chunk(2, -1))
    for key, value, c in zip(keys, values, mixer.coefficients, strict=True):
        scores = torch.zeros(2, 7, 7, dtype=torch.float64)
        for m in range(6):
            for n in range(6):
                scores = scores + c[m, n] * key[:, :, None, m] * key[:, None, :, n]
        scores = (scores / math.sqrt(6)).masked_fill(~where.visible, float("-inf"))
        heads.append(scores.softmax(-1) @ value)
    plain = torch.cat(heads, -1) @ mixer.out.weight.T
    y, _ = mixer(x, at)
    torch.testing.assert_close(y, plain, rtol=0, atol=1e-13)
    leaves = [x, *mixer.parameters()]
    for mine, theirs in zip(*(torch.autograd.grad(out.square().sum(), leaves) for out in (y, plain)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=6), Alibi(heads=4)])
def test_it_is_initialised_to_shared_qk_attention(scheme):
    mixer, tied = ChannelwiseSharedQK(width=24, heads=4).double(), SharedQK(width=24, heads=4).double()
    tied.load_state_dict({name: value for name, value in mixer.state_dict().items() if name != "coefficients"})
    x, at = torch.randn(2, 7, 24, dtype=torch.float64), scheme.at(Geometry.causal(7))
    torch.testing.assert_close(mixer(x, at)[0], tied(x, at)[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=6)])
def test_it_is_usual_attention_whose_queries_are_mixed_keys(scheme):
    mixer, usual = stirred(), Softmax(width=24, heads=4).double()
    with torch.no_grad():
        k, v = mixer.project.weight.chunk(2)
        # rows of a weight are columns of x W
        q = torch.cat([c.T @ part for c, part in zip(mixer.coefficients, k.split(6), strict=True)])
        usual.project.weight.copy_(torch.cat([q, k, v]))
        usual.out.weight.copy_(mixer.out.weight)
    x, at = torch.randn(2, 7, 24, dtype=torch.float64), scheme.at(Geometry.full(7))
    torch.testing.assert_close(mixer(x, at)[0], usual(x, at)[0], rtol=0, atol=1e-13)


def test_coefficients_bring_direction_back():
    mixer, x = stirred(), torch.randn(1, 7, 24, dtype=torch.float64)
    q, k, _ = mixer.project_qkv(x)
    scores = q @ k.mT
    assert (scores - scores.mT).abs().max() > 0.1
    mixer.coefficients.data = mixer.coefficients.data + mixer.coefficients.data.mT
    q, k, _ = mixer.project_qkv(x)
    torch.testing.assert_close(q @ k.mT, (q @ k.mT).mT, rtol=0, atol=1e-12)
