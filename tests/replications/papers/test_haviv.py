from dataclasses import replace

import pytest
import torch
from torch import nn

from ordinate.models.decoder import Decoder
from ordinate.replications.papers.haviv import SHAPE, Haviv, order_gain, place_error, place_errors
from ordinate.replications.runner import replicate


def test_an_error_of_a_quarter_of_the_length_is_chance_and_a_noisy_place_is_read():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(64, 64, 4, generator=generator, dtype=torch.float64)
    assert abs(place_error(noise) - 16) < 0.5
    # the mean absolute error of normal noise of spread 2 is 2 sqrt(2 / pi)
    noisy = torch.arange(64)[:, None] + 2 * noise[..., :1]
    assert abs(place_error(noisy) - 1.6) < 0.15


def test_a_place_that_is_in_the_variance_alone_is_found():
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn(64, 64, 16, generator=generator, dtype=torch.float64).sign()
    assert place_error(signs * (1 + torch.arange(64.0))[:, None].sqrt()) < 0.5


def test_a_model_without_positions_and_mask_tells_no_places_and_one_with_absolute_positions_does():
    texts = torch.randint(16, (96, 64), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    found = place_errors(Decoder(SHAPE).eval(), texts)
    assert found["place error unmasked"] == pytest.approx(16, abs=0.5)
    assert found["place error"] < 15.5
    table = place_errors(Decoder(replace(SHAPE, scheme="learned")).eval(), texts)
    assert table["place error unmasked"] < 8


class Second(nn.Module):
    """Predicts the token before the last one."""

    def forward(self, ids):
        return nn.functional.one_hot(ids.roll(1, 1), 8) * 20.0


class Bag(nn.Module):
    """Predicts by the counts of all tokens before, whatever their order."""

    def forward(self, ids):
        return nn.functional.one_hot(ids, 8).double().cumsum(1)


def test_a_model_that_reads_one_token_back_loses_by_shuffling_and_a_bag_does_not():
    rows = (torch.arange(32)[:, None] * 7 + torch.arange(9)) % 2
    rows = rows + 2 * (torch.arange(9) == 3)
    assert order_gain(Second(), rows) > 1
    assert order_gain(Bag(), rows) == pytest.approx(0, abs=1e-6)


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("haviv", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Haviv.claims]
    assert all(control.recovered for control in result.controls)
    assert "6 models" in result.trained
