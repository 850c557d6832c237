import pytest
import torch

from ordinate.replications.flip_flop import IGNORED, SPARSE, SYMBOLS, flip_flops, is_write, last_written, read_error
from ordinate.replications.papers.golovneva import Golovneva, contextual_weight, kinds, linear_weight
from ordinate.replications.runner import replicate


def test_a_head_with_contextual_positions_finds_the_last_x_at_any_distance_and_a_linear_bias_does_not():
    assert min(contextual_weight(kinds(gap)) for gap in (1, 16, 256)) > 0.99
    for slope in (1e-3, 0.1, 10.0):
        # a slope that tells apart the near x reads what follows the far one
        assert min(linear_weight(kinds(gap), slope) for gap in (1, 16, 256)) < 0.6
    # another x is the last one
    assert contextual_weight(kinds(4).roll(2)) > 0.99


def test_reads_of_a_flip_flop_ask_for_the_last_bit_written():
    rows = flip_flops(torch.Generator().manual_seed(0), 64, IGNORED)
    told = last_written(rows)
    for row, own in zip(rows.tolist(), told.tolist(), strict=True):
        writes = is_write(torch.tensor([row]))[0].tolist()
        last = None
        for token, write, said in zip(row, writes, own, strict=True):
            last = token % 2 if write else last
            assert said == last
    known = torch.nn.functional.one_hot(told, SYMBOLS).double()
    assert read_error(known, rows) == 0
    assert read_error(torch.nn.functional.one_hot(1 - told, SYMBOLS).double(), rows) == 1
    # fewer writes: the last one is longer ago
    sparse = flip_flops(torch.Generator().manual_seed(0), 64, SPARSE)
    assert is_write(sparse).sum() < is_write(rows).sum() / 2


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("golovneva", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Golovneva.claims]
    assert all(control.recovered for control in result.controls)
    assert "24 models" in result.trained
    assert result.claims[0].ours.value == pytest.approx(1, abs=1e-3)
