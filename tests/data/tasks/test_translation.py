import numpy as np
import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.translation import SpecialTokens, Translation, pad_right

SOURCES = [np.array([1, 2, 3]), np.array([4, 5]), np.array([], int), np.arange(6), np.array([2])]
TARGETS = [np.array([3, 2, 1]), np.array([5, 4]), np.array([1]), np.array([0]), np.array([], int)]


def made(**options):
    return Translation(**{"sources": SOURCES, "targets": TARGETS, "tokens": 6, "length": 4} | options)


def test_targets_begin_after_start_and_stop_at_end():
    task = made()
    batch = task.batch([0, 1, 4])
    assert (task.vocabulary, task.end, task.start) == (8, 6, 7)
    assert batch.source.tolist() == [[1, 2, 3], [4, 5, 7], [2, 7, 7]]
    assert batch.inputs.tolist() == [[7, 3, 2, 1], [7, 5, 4, 6], [7, 6, 7, 7]]
    assert batch.targets.tolist() == [
        [3, 2, 1, 6],
        [5, 4, 6, IGNORE_INDEX],
        [6, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX],
    ]
    assert batch.token_mask.tolist() == (batch.targets != IGNORE_INDEX).tolist()
    assert batch.source_token_mask.sum(1).tolist() == [3, 2, 1]
    assert batch.slices["place"].tolist() == [[1, 2, 3, 4]] * 3


def test_pairs_that_do_not_fit_are_not_drawn():
    # an empty source, and one that is too long
    assert made().usable == [0, 1, 4]
    assert made(length=7).usable == [0, 1, 3, 4]
    # a target needs room for its end
    assert made(length=3).usable == [1, 4]


def test_a_batch_is_a_function_of_its_generator():
    one, same, other = (made().sample(torch.Generator().manual_seed(seed), 16) for seed in (0, 0, 1))
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, same.tensors[name])
    assert one.source.shape != other.source.shape or not torch.equal(one.source, other.source)
    assert len({tuple(row) for row in one.source.tolist()}) == 3


def test_padding_no_sequences_gives_nothing():
    rows, real = pad_right([], 3)
    assert rows.shape == real.shape == (0, 0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"targets": TARGETS[1:]}, "each source needs a target; got 5 and 4"),
        ({"length": 1, "sources": SOURCES[:4], "targets": TARGETS[:4]}, "at most 1 tokens on each side; none of 4"),
    ],
)
def test_invalid_pairs_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        made(**options)


def test_special_tokens_may_be_those_of_a_trained_model():
    task = made(special_tokens=SpecialTokens(start=0, end=1, end_source=True), tokens=12)
    batch, plain = task.batch(task.usable), made().batch(task.usable)
    assert (task.vocabulary, task.start, task.end) == (12, 0, 1)
    sizes, theirs = batch.source_token_mask.sum(1), plain.source_token_mask.sum(1)
    assert torch.equal(sizes, theirs + 1)
    for row, size in enumerate(theirs.tolist()):
        assert batch.source[row, : size + 1].tolist() == [*plain.source[row, :size].tolist(), 1]
        assert batch.targets[row][batch.token_mask[row]][-1] == 1
    assert (batch.inputs[:, 0] == 0).all()
    # the sign needs room too
    assert max(len(SOURCES[place]) for place in task.usable) < 4 or len(task.usable) < len(made().usable)
