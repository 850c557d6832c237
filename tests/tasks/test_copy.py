import pytest
import torch

from ordinate.batch import SILENT
from ordinate.tasks.copy import Copy


@pytest.mark.parametrize("count", [1, 2, 7])
def test_what_was_said_is_asked_for_in_the_same_order(count):
    batch = Copy(count=count, symbols=5).sample(torch.Generator().manual_seed(0), 100)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        sign = inputs.index(5)
        said = inputs[:sign]
        assert sign == count
        assert targets == [SILENT] * count + said
        # each is asked for after those before it, and before itself
        assert inputs[sign + 1 :] == said[:-1]


def test_places_are_counted_from_one():
    batch = Copy(count=3).sample(torch.Generator(), 1)
    assert batch.slices["place"][batch.targets != SILENT].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"count": 0}, "something to copy; got count=0"), ({"symbols": 1}, "symbols to tell apart; got symbols=1")],
)
def test_sizes_without_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Copy(**options)
