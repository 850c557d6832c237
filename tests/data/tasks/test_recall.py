import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.recall import Recall


def drawn(task, count=200):
    return task.sample(torch.Generator().manual_seed(0), count)


def test_each_target_equals_a_dictionary_lookup():
    batch = drawn(Recall())
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said = {}
        for place in range(0, len(inputs), 2):
            assert targets[place] == said.get(inputs[place], IGNORE_INDEX)
            if place + 1 < len(inputs):
                assert targets[place + 1] == IGNORE_INDEX
                # a key keeps its value
                assert said.setdefault(inputs[place], inputs[place + 1]) == inputs[place + 1]


def test_the_last_key_always_has_a_target():
    assert (drawn(Recall(pairs=2, keys=50)).targets[:, -1] != IGNORE_INDEX).all()


def test_slices_are_the_distance_and_the_number_of_keys():
    batch = drawn(Recall(pairs=9, keys=4, values=3), 60)
    for row, place in (batch.targets != IGNORE_INDEX).nonzero().tolist():
        inputs = batch.inputs[row].tolist()
        distance = int(batch.slices["distance"][row, place])
        assert inputs[place - distance] == inputs[place]
        assert inputs[place] not in inputs[place - distance + 2 : place : 2]
        assert batch.slices["keys"][row, place] == len(set(inputs[: place + 1 : 2]))


def test_keys_have_other_values_in_other_sequences():
    batch = drawn(Recall(keys=3, values=5), 400)
    values = batch.inputs[batch.inputs[:, 0] == 1][:, 1]
    assert sorted(values.unique().tolist()) == [3, 4, 5, 6, 7]


def test_no_position_reveals_the_answer():
    task = Recall()
    batch = drawn(task, 3000)
    right = (batch.inputs == batch.targets[:, -1:]).float().mean(0)
    # keys come again now and then, so that a value stands at each place more often than once in so many
    assert right.max() < 0.25


def test_twice_the_length_is_twice_the_pairs_of_the_same_keys():
    assert Recall(pairs=8).longer(2) == Recall(pairs=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 1}, "recall needs at least two pairs; got pairs=1; give 2 or more"),
        ({"keys": 0}, "recall needs a key; got keys=0; give 1 or more"),
        ({"values": 1}, "two different values; got values=1"),
        ({"keys": -1}, "keys must not be negative"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Recall(**options)
