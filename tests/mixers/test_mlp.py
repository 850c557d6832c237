import pytest
import torch
from torch import nn

from ordinate import Geometry
from ordinate.mixers.mlp import MlpMixer
from ordinate.schemes import NoPosition


class Published(nn.Module):
    """The block of the paper as in timm: norm, token-mixing MLP, residual; norm, channel-mixing MLP, residual."""

    def __init__(self, width, places):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(places, width // 2), nn.GELU(), nn.Linear(width // 2, places))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


def test_in_a_block_it_is_the_published_one():
    block, mixer = Published(12, 9).double(), MlpMixer(width=12, max_length=9).double()
    with torch.no_grad():
        for ours, theirs in zip(
            (mixer.gather, mixer.gather_bias, mixer.spread, mixer.spread_bias), block.tokens.parameters(), strict=True
        ):
            assert ours.shape == theirs.shape
            ours.copy_(theirs)
    x = torch.randn(2, 9, 12, dtype=torch.float64, requires_grad=True)
    mixed = x + mixer(block.norm1(x), NoPosition().at(Geometry.full(9)))[0]
    y, expected = mixed + block.channels(block.norm2(mixed)), block(x)
    torch.testing.assert_close(y, expected, atol=1e-13, rtol=1e-13)
    for one, other in zip(*(torch.autograd.grad(out.sin().sum(), x) for out in (y, expected)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-13, rtol=1e-13)


def test_a_shorter_text_is_one_filled_up_with_nothing():
    mixer, x = MlpMixer(width=4, max_length=9).double(), torch.randn(2, 5, 4, dtype=torch.float64)
    filled = torch.cat([x, torch.zeros(2, 4, 4)], 1)
    whole, _ = mixer(filled, NoPosition().at(Geometry.full(9)))
    y, _ = mixer(x, NoPosition().at(Geometry.full(5)))
    torch.testing.assert_close(y, whole[:, :5], atol=1e-13, rtol=1e-13)


def test_places_count_from_the_first_token_of_a_row():
    mixer, x = MlpMixer(width=4, max_length=9).double(), torch.randn(2, 6, 4, dtype=torch.float64)
    real = torch.ones(2, 6).bool()
    real[1, :2] = False
    y, _ = mixer(x, NoPosition().at(Geometry.padded(real, causal=False)))
    alone, _ = mixer(x[1:, 2:], NoPosition().at(Geometry.full(4)))
    torch.testing.assert_close(y[1:, 2:], alone, atol=1e-13, rtol=1e-13)


def test_each_channel_is_mixed_by_itself_and_alike():
    mixer, x = MlpMixer(width=4, max_length=9), torch.randn(1, 9, 4)
    at = NoPosition().at(Geometry.full(9))
    torch.testing.assert_close(mixer(x.flip(2), at)[0], mixer(x, at)[0].flip(2))


def test_the_usual_number_of_hidden_places_is_half_the_width():
    assert MlpMixer(width=768, max_length=196).gather.shape == (384, 196)


@pytest.mark.parametrize(("options", "match"), [({"max_length": 0}, "max_length must be"), ({"hidden": 0}, "hidden")])
def test_sizes_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        MlpMixer(**{"width": 4, "max_length": 5} | options)


def test_there_is_no_causal_form():
    with pytest.raises(ValueError, match="mixer 'mlp' has none"):
        MlpMixer(width=4, max_length=5)(torch.randn(1, 3, 4), NoPosition().at(Geometry.causal(3)))
