import numpy as np
import pytest
import torch

from ordinate.models.decoder import Decoder
from ordinate.probing._attach import attach
from ordinate.replications.papers.olsson import (
    SHAPE,
    Olsson,
    Without,
    jump,
    losses,
    overlap,
    planted,
    prefix_scores,
)
from ordinate.replications.repeated_segments import SYMBOLS, TOKENS, repeats, split_losses
from ordinate.replications.runner import replicate


def rows_and_periods():
    return repeats(torch.Generator().manual_seed(0), 32)


def test_a_planted_induction_head_is_found_and_one_a_token_away_is_not():
    rows, periods = rows_and_periods()
    assert prefix_scores(planted(periods), periods) == pytest.approx(1)
    # a duplicate-token head attends to the earlier occurrence itself
    assert prefix_scores(planted(periods + 1), periods) == 0
    # where an induction head attends there is the next token
    at = planted(periods)[:, 0].argmax(-1)
    for row, period, keys in zip(rows, periods, at, strict=True):
        later = torch.arange(int(period), TOKENS)
        assert torch.equal(row[keys[later]], row[later + 1])


def test_segments_have_distinct_symbols_and_differ_in_length():
    rows, periods = rows_and_periods()
    assert len(set(periods.tolist())) > 5
    assert all(len(set(row[:period].tolist())) == period for row, period in zip(rows, periods.tolist(), strict=True))
    assert all(torch.equal(row[period:], row[:-period]) for row, period in zip(rows, periods.tolist(), strict=True))


def test_curves_that_rise_together_overlap_and_a_later_one_does_not():
    assert overlap(jump(4), jump(4)) == 1
    assert overlap(jump(4), jump(5)) == 0
    even = np.arange(16.0)[None]
    assert overlap(jump(4), even) == pytest.approx(1 / 15)


def test_the_loss_of_a_model_that_copies_what_it_has_seen_is_zero_after_the_first_period():
    rows, periods = rows_and_periods()
    known = torch.zeros(len(rows), TOKENS, SYMBOLS)
    for row, period, sure in zip(rows, periods.tolist(), known, strict=True):
        for place in range(period, TOKENS):
            sure[place, row[place - period + 1]] = 100.0
    early, late = split_losses(known, rows[:, 1:], periods)
    assert late == pytest.approx(0, abs=1e-6)
    assert early == pytest.approx(np.log(SYMBOLS), abs=1e-5)


def test_taking_a_head_out_is_zeroing_its_columns_of_the_output_projection():
    torch.manual_seed(0)
    model = Decoder(SHAPE).eval()
    rows, periods = rows_and_periods()
    without = losses(attach(model), rows, periods, Without(1, 2))
    with torch.no_grad():
        model.blocks[1].mixer.out.weight[:, 32:48] = 0
    assert losses(attach(model), rows, periods) == pytest.approx(without, abs=1e-6)


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("olsson", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Olsson.claims]
    assert all(control.recovered for control in result.controls)
    assert "12 models" in result.trained
