import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.same_distance import SameDistance


def test_the_target_is_as_far_back_as_the_marks_are_apart():
    batch = SameDistance(length=13, distances=3, symbols=9).sample(torch.Generator().manual_seed(0), 200)
    found = set()
    for inputs, targets, slices in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.slices["distance"].tolist(), strict=True
    ):
        first, second = inputs.index(9), inputs.index(10)
        distance = second - first
        assert slices == [distance] * 13
        assert sum(token >= 9 for token in inputs) == 2
        start = second + distance + 1
        assert targets == [IGNORE_INDEX] * start + [inputs[t - distance] for t in range(start, 13)]
        found.add((first, distance))
    assert found == {(first, distance) for first in range(3) for distance in (1, 2, 3)}


def test_the_shortest_sequences_ask_something():
    batch = SameDistance(length=8, distances=2).sample(torch.Generator().manual_seed(0), 100)
    assert (batch.targets != IGNORE_INDEX).any(1).all()


def test_longer_sequences_have_the_same_distances():
    longer = SameDistance().longer(4)
    assert (longer.length, longer.distances) == (128, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distances": 1}, "two different distances; got distances=1"),
        ({"distances": 9}, "got distances=9 of length=32"),
        ({"symbols": 1}, "two different symbols; got symbols=1"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SameDistance(**options)
