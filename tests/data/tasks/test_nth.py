import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.nth import Nth


def test_the_target_is_the_symbol_at_the_queried_position():
    batch = Nth(count=7, places=5, questions=4, symbols=6).sample(torch.Generator().manual_seed(0), 200)
    asked = set()
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        places = [token - 6 for token in inputs[7:]]
        assert targets == [IGNORE_INDEX] * 7 + [inputs[place] for place in places]
        asked |= set(places)
    assert asked == set(range(5))
    assert torch.equal(batch.slices["place"][:, 7:], batch.inputs[:, 7:] - 5)


def test_longer_sequences_query_the_same_positions():
    longer = Nth().longer(4)
    assert (longer.count, longer.places, longer.questions) == (64, 16, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"places": 17}, "got places=17 of count=16"),
        ({"places": 0}, "got places=0 of count=16"),
        ({"questions": 0}, "at least one query is needed"),
        ({"symbols": 1}, "two different symbols; got symbols=1"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Nth(**options)
