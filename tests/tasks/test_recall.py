import pytest
import torch

from ordinate.task import SILENT
from ordinate.tasks.recall import Recall


def solve(row):
    """Look the last key up among the pairs."""
    *pairs, key = row.tolist()
    return dict(zip(pairs[::2], pairs[1::2], strict=True))[key]


def test_the_answer_is_what_a_dictionary_says():
    batch = Recall().sample(torch.Generator().manual_seed(0), 500)
    assert (batch.targets[:, :-1] == SILENT).all()
    assert [solve(row) for row in batch.inputs] == batch.targets[:, -1].tolist()


def test_keys_differ_and_each_pair_is_asked_for():
    batch = Recall(pairs=5, keys=7, values=3).sample(torch.Generator().manual_seed(0), 500)
    keys = batch.inputs[:, 0:10:2]
    assert all(len(set(row)) == 5 for row in keys.tolist())
    assert sorted(batch.slices["distance"].unique().tolist()) == [2, 4, 6, 8, 10]
    for row, distance in zip(batch.inputs.tolist(), batch.slices["distance"][:, 0].tolist(), strict=True):
        assert row[-1] == row[-1 - distance]


def test_no_place_gives_the_answer_away():
    task = Recall()
    batch = task.sample(torch.Generator().manual_seed(0), 4000)
    right = (batch.inputs == batch.targets[:, -1:]).float().mean(0)
    # the right pair stands at each place as often as at any other
    assert right.max() < 1 / task.pairs + task.chance + 0.02


def test_twice_the_length_is_twice_the_pairs():
    assert Recall(pairs=8).longer(2) == Recall(pairs=16)
    with pytest.raises(ValueError, match="a key for each pair; got 10 keys for 16 pairs"):
        Recall(pairs=8, keys=10).longer(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 0}, "recall needs a pair; got pairs=0; give 1 or more"),
        ({"pairs": 9, "keys": 8}, "a key for each pair; got 8 keys for 9 pairs; give more keys, or fewer pairs"),
        ({"values": 1}, "values to tell apart; got values=1"),
        ({"keys": -1}, "keys must not be negative"),
    ],
)
def test_sizes_without_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Recall(**options)
