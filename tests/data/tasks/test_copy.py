import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.copy import Copy


@pytest.mark.parametrize("count", [1, 2, 7])
def test_targets_are_the_symbols_in_order(count):
    batch = Copy(count=count, symbols=5).sample(torch.Generator().manual_seed(0), 100)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        sign = inputs.index(5)
        said = inputs[:sign]
        assert sign == count
        assert targets == [IGNORE_INDEX] * count + said
        # each is asked for after those before it, and before itself
        assert inputs[sign + 1 :] == said[:-1]


def test_places_are_counted_from_one():
    batch = Copy(count=3).sample(torch.Generator(), 1)
    assert batch.slices["place"][batch.targets != IGNORE_INDEX].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"count": 0}, "something to copy; got count=0"), ({"symbols": 1}, "two different symbols; got symbols=1")],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Copy(**options)
