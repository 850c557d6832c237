import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.reverse import Reverse


@pytest.mark.parametrize("count", [1, 2, 7])
def test_targets_are_the_symbols_reversed(count):
    batch = Reverse(count=count, symbols=5).sample(torch.Generator().manual_seed(0), 100)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        sign = inputs.index(5)
        back = inputs[:sign][::-1]
        assert sign == count
        assert targets == [IGNORE_INDEX] * count + back
        assert inputs[sign + 1 :] == back[:-1]


def test_the_distance_grows_by_two_with_each_answer():
    batch = Reverse(count=4).sample(torch.Generator().manual_seed(0), 50)
    for row, place in (batch.targets != IGNORE_INDEX).nonzero().tolist():
        distance = int(batch.slices["distance"][row, place])
        assert batch.inputs[row, place - distance] == batch.targets[row, place]
    assert batch.slices["distance"][0, 4:].tolist() == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"count": 0}, "something to reverse; got count=0"), ({"symbols": 1}, "two different symbols; got symbols=1")],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Reverse(**options)
