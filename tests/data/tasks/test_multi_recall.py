import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.multi_recall import MultiRecall

TASK = MultiRecall(length=64, pairs=8, vocabulary=256)


def drawn(task=TASK, count=300):
    return task.sample(torch.Generator().manual_seed(0), count)


def test_each_target_equals_a_dictionary_lookup():
    batch = drawn()
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said = dict(zip(inputs[0:16:2], inputs[1:16:2], strict=True))
        asked = [place for place, target in enumerate(targets) if target != IGNORE_INDEX]
        assert [said[inputs[place]] for place in asked] == [targets[place] for place in asked]
        # every key is asked for once, at an even place after the pairs
        assert sorted(inputs[place] for place in asked) == sorted(said)
        assert all(place >= 16 and place % 2 == 0 for place in asked)


def test_keys_and_values_come_from_their_halves_and_differ():
    batch = drawn()
    keys, values = batch.inputs[:, 0:16:2], batch.inputs[:, 1:16:2]
    assert (keys.min(), keys.max()) == (1, 127)
    assert (values.min(), values.max()) == (128, 255)
    assert all(len(set(row)) == 8 for row in [*keys.tolist(), *values.tolist()])


def test_filler_tokens_are_random():
    batch = drawn()
    rest = batch.inputs[:, 16:][batch.targets[:, 16:] == IGNORE_INDEX]
    assert (rest.min(), rest.max()) == (0, 255)


def test_query_positions_follow_the_power_law():
    task = MultiRecall(length=64, pairs=1, vocabulary=128, power=0.01)
    batch = drawn(task, 20_000)
    places = (batch.targets != IGNORE_INDEX).float().argmax(1)
    share = ((places - 2) // 2).bincount(minlength=31) / 20_000
    law = torch.arange(1, 32, dtype=torch.float64) ** (0.01 - 1)
    torch.testing.assert_close(share.double(), law / law.sum(), atol=0.012, rtol=0)


def test_with_power_one_query_positions_are_uniform():
    batch = drawn(MultiRecall(length=64, pairs=1, vocabulary=128, power=1.0), 20_000)
    share = ((batch.targets != IGNORE_INDEX).float().argmax(1) // 2 - 1).bincount(minlength=31) / 20_000
    assert share.max() - share.min() < 0.02


def test_distance_is_from_the_key_to_its_query():
    batch = drawn()
    for row, place in (batch.targets != IGNORE_INDEX).nonzero().tolist():
        distance = int(batch.slices["distance"][row, place])
        assert batch.inputs[row, place - distance] == batch.inputs[row, place]


def test_twice_the_length_is_twice_the_pairs():
    assert MultiRecall().longer(2) == MultiRecall(length=128, pairs=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 0}, "needs at least one pair; got pairs=0"),
        ({"length": 65}, "needs an even length; got 65"),
        ({"length": 30, "pairs": 8}, "a length of at least four tokens per pair; got length 30 for 8 pairs"),
        ({"vocabulary": 64}, "a vocabulary larger than the length; got vocabulary 64 for length 64"),
        ({"power": 0.0}, "power must be above zero"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiRecall(**options)


def test_the_tightest_sizes_still_have_room():
    batch = drawn(MultiRecall(length=32, pairs=8, vocabulary=33), 5)
    assert ((batch.targets != IGNORE_INDEX).sum(1) == 8).all()


def test_a_power_with_which_positions_cannot_be_drawn_is_refused():
    with pytest.raises(
        ValueError, match=r"power must be at most 173 for 28 positions, .*; got power=1e.09; give less"
    ):
        MultiRecall(power=1e9)
    MultiRecall(power=173.0).sample(torch.Generator().manual_seed(0), 2)
