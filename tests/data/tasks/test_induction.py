import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.induction import Induction


def solve(row, sign):
    """What follows the sign the first time."""
    row = row.tolist()
    return row[row.index(sign) + 1]


@pytest.mark.parametrize("length", [3, 4, 30])
def test_the_target_follows_the_first_marker(length):
    batch = Induction(length=length, symbols=20).sample(torch.Generator().manual_seed(0), 500)
    assert (batch.targets[:, :-1] == IGNORE_INDEX).all()
    assert ((batch.inputs == 20).sum(1) == 2).all()
    assert [solve(row, 20) for row in batch.inputs] == batch.targets[:, -1].tolist()
    assert (batch.targets[:, -1] < 20).all()


def test_the_marker_is_anywhere_and_the_slice_is_its_distance():
    batch = Induction(length=30).sample(torch.Generator().manual_seed(0), 1000)
    first = (batch.inputs == 20).float().argmax(1)
    assert sorted(first.unique().tolist()) == list(range(28))
    assert torch.equal(batch.slices["distance"][:, 0], 29 - first)


def test_no_position_reveals_the_answer():
    batch = Induction(length=30).sample(torch.Generator().manual_seed(0), 4000)
    assert (batch.inputs == batch.targets[:, -1:]).float().mean(0).max() < 0.05 + 1 / 28 + 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "induction needs a length of at least 3; got length 2"),
        ({"symbols": 1}, "two different symbols; got symbols=1"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Induction(**options)
