import pytest
import torch

from ordinate.batch import SILENT
from ordinate.tasks.nth import Nth


def test_the_answer_stood_at_the_place_that_is_asked_for():
    batch = Nth(count=7, places=5, questions=4, symbols=6).sample(torch.Generator().manual_seed(0), 200)
    asked = set()
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        places = [token - 6 for token in inputs[7:]]
        assert targets == [SILENT] * 7 + [inputs[place] for place in places]
        asked |= set(places)
    assert asked == set(range(5))
    assert torch.equal(batch.slices["place"][:, 7:], batch.inputs[:, 7:] - 5)


def test_longer_sequences_ask_for_the_same_places():
    longer = Nth().longer(4)
    assert (longer.count, longer.places, longer.questions) == (64, 16, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"places": 17}, "got places=17 of count=16"),
        ({"places": 0}, "got places=0 of count=16"),
        ({"questions": 0}, "something must be asked"),
        ({"symbols": 1}, "symbols to tell apart; got symbols=1"),
    ],
)
def test_sizes_without_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Nth(**options)
