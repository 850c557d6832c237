import math

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers.sinkhorn import Sinkhorn
from ordinate.mixers.softmax import Softmax
from ordinate.schemes import Alibi, NoPosition, Rope

WHERES = {
    "full": Geometry.full(7),
    "packed": Geometry.packed([3, 4], causal=False),
    "window": Geometry.full(7, window=3),
    "padded": Geometry.padded(
        torch.tensor([[True] * 7, [False, False, True, True, True, True, False]]), causal=False
    ),
}


def weights(mixer, x, at):
    """exp(scores) with rows and columns normalised alternately, without log space."""
    q, k, v = (mixer.split_heads(part) for part in (x @ mixer.project.weight.T).split(mixer.widths, -1))
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    bias = 0 if at.bias is None else at.bias
    found = (q @ k.mT / math.sqrt(mixer.head_width) + bias).exp() * at.where.visible[:, None]
    for division in range(mixer.divisions):
        total = found.sum(-2 if division % 2 else -1, keepdim=True)
        # what sees nothing is left at nothing
        found = found / torch.where(total == 0, 1, total)
    return found, v


@pytest.mark.covering(1)
@pytest.mark.parametrize("divisions", [1, 3, 5, 21])
@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("scheme", [NoPosition(), Alibi(heads=4)])
def test_it_is_the_formula_forward_and_backward(scheme, where, divisions):
    mixer, at = Sinkhorn(width=24, heads=4, kv_heads=2, divisions=divisions).double(), scheme.at(WHERES[where])
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    found, v = weights(mixer, x, at)
    plain = (found @ v).transpose(1, 2).flatten(2) @ mixer.out.weight.T
    y, state = mixer(x, at)
    assert state is None
    torch.testing.assert_close(y, plain, rtol=0, atol=1e-12)
    leaves = [x, *mixer.parameters()]
    for mine, theirs in zip(*(torch.autograd.grad(out.square().sum(), leaves) for out in (y, plain)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("where", WHERES)
def test_one_division_is_the_softmax(where):
    mixer, usual = Sinkhorn(width=24, heads=4, divisions=1).double(), Softmax(width=24, heads=4).double()
    usual.load_state_dict(mixer.state_dict())
    x, at = torch.randn(2, 7, 24, dtype=torch.float64), Rope(head_width=6).at(WHERES[where])
    torch.testing.assert_close(mixer(x, at)[0], usual(x, at)[0], rtol=0, atol=1e-13)


def test_rows_sum_to_one_and_columns_come_near():
    far = []
    for divisions in (1, 5, 41):
        mixer = Sinkhorn(width=24, heads=4, divisions=divisions).double()
        mixer.project.weight.data *= 3
        visible = Geometry.full(9).visible
        found = mixer._weigh(
            3 * torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(1)).double(), visible
        )
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found.sum(-1)), rtol=0, atol=1e-12)
        far.append((found.sum(-2) - 1).abs().max().item())
    assert far[0] > 1
    assert far[1] < far[0] / 3
    assert far[2] < 0.05


def test_large_scores_do_not_overflow():
    visible = Geometry.full(9).visible
    found = Sinkhorn(width=24, heads=4)._weigh(1e4 * torch.randn(1, 4, 9, 9), visible)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 4, 9))


def test_it_has_no_causal_form():
    mixer = Sinkhorn(width=8, heads=2)
    with pytest.raises(
        ValueError, match="needs a mixer with a causal form; mixer 'sinkhorn' has none; choose another mixer"
    ):
        mixer(torch.randn(1, 3, 8), NoPosition().at(Geometry.causal(3)))
    with pytest.raises(ValueError, match="mixer 'sinkhorn' has none"):
        Decoder(Shape(vocabulary=5, width=8, heads=2, mixer="sinkhorn"))


@pytest.mark.parametrize("divisions", [0, 2, -1])
def test_divisions_are_odd(divisions):
    with pytest.raises(
        ValueError, match=f"divisions must be odd, so that rows come first and last; got {divisions}; give 1, 3"
    ):
        Sinkhorn(width=8, heads=2, divisions=divisions)
