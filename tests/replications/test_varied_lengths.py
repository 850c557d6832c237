import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.replications.varied_lengths import (
    SYMBOLS,
    TRAINED,
    VariedLengths,
    accuracy,
    answered,
    ascending,
    backwards,
    strings,
)


def test_strings_are_repeated_in_their_order_after_the_separator():
    for reorder, wanted in ((ascending, sorted), (backwards, lambda row: row[::-1])):
        batch = strings(torch.Generator().manual_seed(0), 5, 4, reorder)
        for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            assert len(set(inputs[:4])) == 4
            assert inputs[4] == SYMBOLS
            assert targets[4:] == wanted(inputs[:4])
            assert inputs[5:] == targets[4:-1]
            assert targets[:4] == [IGNORE_INDEX] * 4


def test_training_has_all_lengths_up_to_the_longest_and_none_beyond():
    generator, task = torch.Generator().manual_seed(0), VariedLengths(ascending)
    lengths = {task.sample(generator, 1).inputs.shape[1] // 2 for _ in range(200)}
    assert lengths == set(range(1, TRAINED + 1))


def test_accuracy_counts_the_targets_alone():
    targets = torch.tensor([[IGNORE_INDEX, IGNORE_INDEX, 3, 4, 5, 6]])
    assert answered(torch.tensor([[3, 4, 3, 4, 0, 0]]), targets) == 0.5

    def knows(ids):
        length = ids.shape[1] // 2
        given = ids[:, :length].sort(1).values
        answers = torch.cat([torch.zeros_like(given), given], 1)
        return torch.nn.functional.one_hot(answers, SYMBOLS + 1).double()

    assert accuracy(knows, 7, ascending) == 1
    assert accuracy(knows, 7, backwards) < 0.5
