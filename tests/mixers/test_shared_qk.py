import pytest
import torch

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.mixers.shared_qk import SharedQK
from ordinate.mixers.softmax import Softmax
from ordinate.schemes import Alibi, NoPosition, Rope

WHERES = [Geometry.causal(7), Geometry.full(7), Geometry.packed([3, 4]), Geometry.causal(7, window=3)]


def untied(mixer: SharedQK) -> Softmax:
    """Standard attention with W_K = W_Q."""
    usual = Softmax(width=mixer.width, heads=mixer.width // mixer.head_width).double()
    with torch.no_grad():
        k, v = mixer.project.weight.chunk(2)
        usual.project.weight.copy_(torch.cat([k, k, v]))
        usual.out.weight.copy_(mixer.out.weight)
    return usual


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=6), Alibi(heads=4)])
def test_it_is_usual_attention_with_one_matrix_for_both(scheme, where):
    mixer = SharedQK(width=24, heads=4).double()
    usual, at = untied(mixer), scheme.at(where)
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    (y, _), (expected, _) = mixer(x, at), usual(x, at)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
    mine, theirs = (torch.autograd.grad(out.square().sum(), x)[0] for out in (y, expected))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    # the one matrix gets what both would get
    tied = torch.autograd.grad(mixer(x, at)[0].square().sum(), mixer.project.weight)[0].chunk(2)
    parts = torch.autograd.grad(usual(x, at)[0].square().sum(), usual.project.weight)[0].chunk(3)
    torch.testing.assert_close(tied[0], parts[0] + parts[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(tied[1], parts[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=6)])
def test_scores_are_symmetric_even_under_rope(scheme):
    mixer, at = SharedQK(width=24, heads=4).double(), scheme.at(Geometry.full(7))
    q, k, _ = mixer.project_qkv(torch.randn(1, 7, 24, dtype=torch.float64))
    q, k = at.encode(q, k).pair
    scores = q @ k.mT
    torch.testing.assert_close(scores, scores.mT, rtol=0, atol=1e-12)
    assert torch.linalg.eigvalsh(scores).min() > -1e-9 * scores.abs().max()


def test_a_token_finds_itself_first():
    mixer = SharedQK(width=24, heads=3).double()
    q, k, _ = mixer.project_qkv(torch.randn(50, 12, 24, dtype=torch.float64))
    first = (q @ k.mT).argmax(-1) == torch.arange(12)
    assert 0.75 < first.double().mean() < 0.95


def test_it_has_a_matrix_less_and_no_groups_of_heads():
    assert SharedQK(width=24, heads=4).project.weight.shape == (48, 24)
    assert "kv_heads" not in catalog.options(SharedQK)
