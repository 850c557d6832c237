import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.sorting import Sorting


@pytest.mark.parametrize("count", [2, 5, 7])
def test_targets_are_the_sorted_symbols(count):
    batch = Sorting(count=count, symbols=7).sample(torch.Generator().manual_seed(0), 100)
    unsorted = 0
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said, sign, again = inputs[:count], inputs[count], inputs[count + 1 :]
        assert sign == 7
        assert len(set(said)) == count
        assert targets == [IGNORE_INDEX] * count + sorted(said)
        assert again == sorted(said)[:-1]
        unsorted += said != sorted(said)
    assert unsorted > 40


@pytest.mark.parametrize(
    ("options", "message"),
    [({"count": 1}, "at least two symbols; got count=1"), ({"count": 9, "symbols": 8}, "got count=9 of symbols=8")],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sorting(**options)


def test_count_cannot_exceed_symbols():
    with pytest.raises(ValueError, match="got count=128 of symbols=64"):
        Sorting().longer(8)
