import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.previous import Previous


@pytest.mark.parametrize("back", [1, 3, 6])
def test_the_target_is_the_symbol_so_far_back(back):
    batch = Previous(length=7, back=back, symbols=5).sample(torch.Generator().manual_seed(0), 50)
    for inputs, targets, places in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.slices["place"].tolist(), strict=True
    ):
        assert targets == [IGNORE_INDEX] * back + [inputs[t - back] for t in range(back, 7)]
        assert places == [1, 2, 3, 4, 5, 6, 7]


def test_longer_sequences_ask_for_the_same_distance():
    longer = Previous(back=2).longer(4)
    assert (longer.length, longer.back) == (128, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"back": 0}, "got back=0 of length=32"),
        ({"back": 32}, "got back=32 of length=32"),
        ({"symbols": 1}, "two different symbols; got symbols=1"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Previous(**options)
