import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.counting import Counting


def test_the_target_is_the_number_of_occurrences_so_far():
    batch = Counting(count=11, kinds=3, most=4, symbols=7).sample(torch.Generator().manual_seed(0), 200)
    asked = set()
    for inputs, targets, slices in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.slices["occurrence"].tolist(), strict=True
    ):
        counts = [inputs[: place + 1].count(inputs[place]) for place in range(1, 12)]
        assert inputs[0] == 7
        assert len(set(inputs[1:])) <= 3
        assert slices == [0, *counts]
        assert targets == [IGNORE_INDEX] + [7 + count if count <= 4 else IGNORE_INDEX for count in counts]
        asked |= set(counts)
    assert asked >= {1, 2, 3, 4, 5}


def test_one_head_counts_by_the_weight_of_the_mark():
    batch = Counting().sample(torch.Generator().manual_seed(0), 20)
    ids, place = batch.inputs, torch.arange(batch.inputs.shape[1])
    # equal scores at the mark and at each earlier occurrence
    seen = ((ids[:, :, None] == ids[:, None, :]) | (place == 0)).tril()
    mark = (seen / seen.sum(2, keepdim=True))[..., 0]
    asked = batch.targets != IGNORE_INDEX
    assert torch.equal((1 / mark - 1).round().long()[asked], (batch.targets - 64)[asked])


def test_counts_stay_as_they_are_in_longer_sequences():
    task = Counting()
    longer = task.longer(8)
    assert (longer.count, longer.kinds, longer.most, longer.vocabulary) == (192, 48, 8, task.vocabulary)
    assert longer.baseline_accuracy == pytest.approx(task.baseline_accuracy, abs=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": 1}, "got kinds=1 of symbols=64"),
        ({"kinds": 65}, "got kinds=65 of symbols=64"),
        ({"most": 1}, "got most=1 of count=24"),
        ({"most": 25}, "got most=25 of count=24"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Counting(**options)
