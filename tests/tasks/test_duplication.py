import pytest
import torch

from ordinate.batch import SILENT
from ordinate.tasks.duplication import Duplication


@pytest.mark.parametrize("length", [4, 6, 64])
def test_a_word_that_begins_again_is_asked_for(length):
    batch = Duplication(length=length, symbols=9).sample(torch.Generator().manual_seed(0), 100)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        half = length // 2
        word = inputs[1:half]
        assert inputs == [0, *word, 0, *word]
        assert 0 not in word
        assert targets == [SILENT] * half + [*word, SILENT]


def test_the_papers_size_can_be_drawn():
    task = Duplication(length=1024)
    batch = task.sample(torch.Generator().manual_seed(0), 2)
    assert batch.inputs.unique().tolist() == list(range(128))
    assert int((batch.targets != SILENT).sum()) == 2 * 511


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 63}, "needs an even length, 4 or more; got length 63"),
        ({"length": 2}, "needs an even length, 4 or more; got length 2"),
        ({"symbols": 1}, "symbols to tell apart; got 1"),
    ],
)
def test_sizes_without_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Duplication(**options)
