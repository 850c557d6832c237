from functools import partial

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers import Softmax
from ordinate.models.block import Block
from ordinate.models.feedforward import FEEDFORWARD_KINDS, FeedForward
from ordinate.models.norm_kinds import NORMS, make_norm
from ordinate.schemes import NoPosition

AT = NoPosition().at(Geometry.causal(5))


def norm_of(kind, width):
    return make_norm(kind, width, None, zero_centred=False, bias=True)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("feedforward", FEEDFORWARD_KINDS)
def test_a_block_adds_both_branches_to_what_was_there(norm, feedforward):
    inner = FeedForward(feedforward, 8, 12)
    block = Block(Softmax(width=8, heads=2), inner, partial(norm_of, norm), 8, dropout=0.0)
    x = torch.randn(2, 5, 8)
    y, state = block(x, AT)
    between = x + block.mixer(block.mixer_norm(x), AT)[0]
    assert torch.equal(y, between + inner(block.feedforward_norm(between)))
    assert state.k.shape == (2, 2, 5, 4)


def test_a_block_whose_branches_say_nothing_changes_nothing():
    block = Block(Softmax(width=8, heads=2), FeedForward("gelu", 8, 12), partial(norm_of, "rms"), 8, dropout=0.0)
    torch.nn.init.zeros_(block.mixer.out.weight)
    torch.nn.init.zeros_(block.feedforward.narrow.weight)
    x = torch.randn(2, 5, 8)
    assert torch.equal(block(x, AT)[0], x)


def test_gelu_is_its_formula():
    inner = FeedForward("gelu", 4, 6).double()
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    wide = x @ inner.widen.weight.T
    expected = (wide * 0.5 * (1 + torch.erf(wide / 2**0.5))) @ inner.narrow.weight.T
    assert torch.allclose(inner(x), expected, atol=1e-14)


def test_swiglu_is_its_formula():
    inner = FeedForward("swiglu", 4, 6).double()
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    gate, value = (x @ part.T for part in inner.widen.weight.split(6))
    assert torch.allclose(inner(x), (gate * gate.sigmoid() * value) @ inner.narrow.weight.T, atol=1e-14)


def test_dropout_acts_in_training_only():
    block = Block(Softmax(width=8, heads=2), FeedForward("gelu", 8, 12), partial(norm_of, "rms"), 8, dropout=0.5)
    x = torch.randn(2, 5, 8)
    assert not torch.equal(block(x, AT)[0], block(x, AT)[0])
    block.eval()
    assert torch.equal(block(x, AT)[0], block(x, AT)[0])
