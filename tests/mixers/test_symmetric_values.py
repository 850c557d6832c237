import math

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.softmax import Softmax
from ordinate.mixers.symmetric_values import SymmetricValues
from ordinate.schemes import Alibi, NoPosition, Rope

WHERES = [Geometry.causal(7), Geometry.full(7), Geometry.packed([3, 4]), Geometry.causal(7, window=3)]


def formula(mixer, x, at):
    """Sum over heads of softmax(Q K^T / sqrt d) V W^T / sqrt d, head by head."""
    d, hidden = mixer.head_width, ~at.where.visible
    q, k, v = (part.split(d, -1) for part in (x @ mixer.project.weight.T).split(mixer.widths, -1))
    total = 0
    for head, matrix in enumerate(mixer.out.matrix):
        group = head // (len(q) // len(k))
        weights = (q[head] @ k[group].mT / math.sqrt(d)).masked_fill(hidden, float("-inf")).softmax(-1)
        total = total + weights @ v[group] @ matrix.T / math.sqrt(d)
    return total


@pytest.mark.parametrize("kv_heads", [None, 2, 1])
@pytest.mark.parametrize("where", WHERES)
def test_it_is_the_formula_forward_and_backward(where, kv_heads):
    mixer = SymmetricValues(width=24, heads=4, kv_heads=kv_heads).double()
    x, at = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True), NoPosition().at(where)
    results = []
    for y in (mixer(x, at)[0], formula(mixer, x, at)):
        results.append((y, *torch.autograd.grad(y.square().sum(), [x, *mixer.parameters()])))
    for mine, plain in zip(*results, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-12)


def same(mixer: SymmetricValues) -> Softmax:
    """The equivalent standard attention: W_O[h] = W_h^T / sqrt(d)."""
    heads, width, d = mixer.out.matrix.shape
    usual = Softmax(width=width, heads=heads).double()
    with torch.no_grad():
        usual.project.weight.copy_(mixer.project.weight)
        for head in range(heads):
            columns = slice(head * d, (head + 1) * d)
            usual.out.weight[:, columns] = mixer.out.matrix[head] / math.sqrt(d)
    return usual


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("scheme", [Rope(head_width=6), Alibi(heads=4)])
def test_it_is_usual_attention_in_other_letters(scheme, where):
    mixer = SymmetricValues(width=24, heads=4).double()
    x, usual, at = torch.randn(2, 7, 24, dtype=torch.float64), same(mixer), scheme.at(where)
    torch.testing.assert_close(mixer(x, at)[0], usual(x, at)[0], rtol=0, atol=1e-14)
    # and it is not if the division is left out
    usual.out.weight.data *= math.sqrt(mixer.head_width)
    assert not torch.allclose(mixer(x, at)[0], usual(x, at)[0], atol=1e-3)


def test_at_birth_it_is_as_large_as_usual_attention():
    sizes = {"vocabulary": 11, "width": 256, "heads": 4, "layers": 2}
    usual, symmetric = (
        Decoder(Shape(**sizes, mixer=mixer)).blocks[1].mixer for mixer in ("softmax", "symmetric_values")
    )
    # 16 384 draws: a standard deviation to within four standard errors
    read = symmetric.out.matrix * symmetric.head_width**-0.5
    assert read.std().item() == pytest.approx(0.01, rel=4 / math.sqrt(2 * read.numel()))
    assert usual.out.weight.std().item() == pytest.approx(0.01, rel=4 / math.sqrt(2 * read.numel()))
