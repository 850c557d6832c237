import math

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.scale_after_softmax import ScaleAfterSoftmax
from ordinate.mixers.softmax import Softmax
from ordinate.schemes import Alibi, NoPosition, Rope

WHERES = [Geometry.causal(7), Geometry.full(7), Geometry.packed([3, 4])]


@pytest.mark.parametrize("where", WHERES)
def test_it_is_the_formula_forward_and_backward(where):
    mixer, at = ScaleAfterSoftmax(width=24, heads=4, kv_heads=2).double(), NoPosition().at(where)
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    q, k, v = (part.split(6, -1) for part in (x @ mixer.project.weight.T).split(mixer.widths, -1))
    hidden, heads = ~where.visible, []
    for head in range(4):
        scores = q[head] @ k[head // 2].mT
        heads.append(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v[head // 2] / math.sqrt(6))
    plain = torch.cat(heads, -1) @ mixer.out.weight.T
    y, _ = mixer(x, at)
    torch.testing.assert_close(y, plain, rtol=0, atol=1e-13)
    leaves = [x, *mixer.parameters()]
    for mine, theirs in zip(*(torch.autograd.grad(out.square().sum(), leaves) for out in (y, plain)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scheme", [Rope(head_width=6), Alibi(heads=4)])
def test_other_matrices_make_it_usual_attention(scheme):
    mixer, usual = ScaleAfterSoftmax(width=24, heads=4).double(), Softmax(width=24, heads=4).double()
    with torch.no_grad():
        q, k, v = mixer.project.weight.chunk(3)
        usual.project.weight.copy_(torch.cat([q * math.sqrt(6), k, v]))
        usual.out.weight.copy_(mixer.out.weight / math.sqrt(6))
    x, at = torch.randn(2, 7, 24, dtype=torch.float64), scheme.at(Geometry.causal(7))
    torch.testing.assert_close(mixer(x, at)[0], usual(x, at)[0], rtol=0, atol=1e-14)


def test_the_softmax_saturates_and_passes_little_gradient():
    # vectors of 64 channels of size one, as the argument for the scale assumes
    q, k = torch.randn(2, 200, 64, 64, dtype=torch.float64)
    top, passed = [], []
    for scale in (1 / math.sqrt(64), 1.0):
        weights = (q @ k.mT * scale).softmax(-1)
        top.append(weights.amax(-1).mean().item())
        # the mean slope of a weight by its own score
        passed.append((weights * (1 - weights)).sum(-1).mean().item())
    assert top[0] < 0.2
    assert top[1] > 0.75
    assert passed[1] < passed[0] / 2
