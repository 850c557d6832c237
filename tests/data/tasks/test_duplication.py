import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.duplication import Duplication


@pytest.mark.parametrize("length", [4, 6, 64])
def test_targets_are_the_repeated_word(length):
    batch = Duplication(length=length, symbols=9).sample(torch.Generator().manual_seed(0), 100)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        half = length // 2
        word = inputs[1:half]
        assert inputs == [0, *word, 0, *word]
        assert 0 not in word
        assert targets == [IGNORE_INDEX] * half + [*word, IGNORE_INDEX]


def test_the_papers_size_can_be_drawn():
    task = Duplication(length=1024)
    batch = task.sample(torch.Generator().manual_seed(0), 2)
    assert batch.inputs.unique().tolist() == list(range(128))
    assert int((batch.targets != IGNORE_INDEX).sum()) == 2 * 511


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 63}, "needs an even length of at least 4; got length 63"),
        ({"length": 2}, "needs an even length of at least 4; got length 2"),
        ({"symbols": 1}, "two different symbols; got symbols=1"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Duplication(**options)
