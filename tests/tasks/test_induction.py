import pytest
import torch

from ordinate.batch import SILENT
from ordinate.tasks.induction import Induction


def solve(row, sign):
    """What follows the sign the first time."""
    row = row.tolist()
    return row[row.index(sign) + 1]


@pytest.mark.parametrize("length", [3, 4, 30])
def test_the_answer_is_what_follows_the_first_sign(length):
    batch = Induction(length=length, symbols=20).sample(torch.Generator().manual_seed(0), 500)
    assert (batch.targets[:, :-1] == SILENT).all()
    assert ((batch.inputs == 20).sum(1) == 2).all()
    assert [solve(row, 20) for row in batch.inputs] == batch.targets[:, -1].tolist()
    assert (batch.targets[:, -1] < 20).all()


def test_the_sign_stands_anywhere_and_the_slice_says_how_far_away():
    batch = Induction(length=30).sample(torch.Generator().manual_seed(0), 1000)
    first = (batch.inputs == 20).float().argmax(1)
    assert sorted(first.unique().tolist()) == list(range(28))
    assert torch.equal(batch.slices["distance"][:, 0], 29 - first)


def test_no_place_gives_the_answer_away():
    batch = Induction(length=30).sample(torch.Generator().manual_seed(0), 4000)
    assert (batch.inputs == batch.targets[:, -1:]).float().mean(0).max() < 0.05 + 1 / 28 + 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [({"length": 2}, "induction needs three tokens; got length 2"), ({"symbols": 1}, "symbols to tell apart; got 1")],
)
def test_sizes_without_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Induction(**options)
