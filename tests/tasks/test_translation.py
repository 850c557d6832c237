import numpy as np
import pytest
import torch

from ordinate.batch import SILENT
from ordinate.tasks.translation import Signs, Translation, padded

SOURCES = [np.array([1, 2, 3]), np.array([4, 5]), np.array([], int), np.arange(6), np.array([2])]
TARGETS = [np.array([3, 2, 1]), np.array([5, 4]), np.array([1]), np.array([0]), np.array([], int)]


def made(**options):
    return Translation(**{"sources": SOURCES, "targets": TARGETS, "tokens": 6, "length": 4} | options)


def test_a_target_is_said_after_the_start_and_up_to_its_end():
    task = made()
    batch = task.batch([0, 1, 4])
    assert (task.vocabulary, task.end, task.start) == (8, 6, 7)
    assert batch.source.tolist() == [[1, 2, 3], [4, 5, 7], [2, 7, 7]]
    assert batch.inputs.tolist() == [[7, 3, 2, 1], [7, 5, 4, 6], [7, 6, 7, 7]]
    assert batch.targets.tolist() == [[3, 2, 1, 6], [5, 4, 6, SILENT], [6, SILENT, SILENT, SILENT]]
    assert batch.real.tolist() == (batch.targets != SILENT).tolist()
    assert batch.source_real.sum(1).tolist() == [3, 2, 1]
    assert batch.slices["place"].tolist() == [[1, 2, 3, 4]] * 3


def test_pairs_that_do_not_fit_are_not_drawn():
    # an empty source, and one that is too long
    assert made().fitting == [0, 1, 4]
    assert made(length=7).fitting == [0, 1, 3, 4]
    # a target needs room for its end
    assert made(length=3).fitting == [1, 4]


def test_a_batch_is_a_function_of_its_generator():
    one, same, other = (made().sample(torch.Generator().manual_seed(seed), 16) for seed in (0, 0, 1))
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, same.tensors[name])
    assert one.source.shape != other.source.shape or not torch.equal(one.source, other.source)
    assert len({tuple(row) for row in one.source.tolist()}) == 3


def test_nothing_is_filled_up_to_nothing():
    rows, real = padded([], 3)
    assert rows.shape == real.shape == (0, 0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"targets": TARGETS[1:]}, "each source has a target; got 5 and 4"),
        ({"length": 1, "sources": SOURCES[:4], "targets": TARGETS[:4]}, "at most 1 tokens on each side; none of 4"),
    ],
)
def test_pairs_without_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        made(**options)


def test_signs_are_those_that_a_trained_model_is_used_to():
    task = made(signs=Signs(start=0, end=1, closes=True), tokens=12)
    batch, plain = task.batch(task.fitting), made().batch(task.fitting)
    assert (task.vocabulary, task.start, task.end) == (12, 0, 1)
    sizes, theirs = batch.source_real.sum(1), plain.source_real.sum(1)
    assert torch.equal(sizes, theirs + 1)
    for row, size in enumerate(theirs.tolist()):
        assert batch.source[row, : size + 1].tolist() == [*plain.source[row, :size].tolist(), 1]
        assert batch.targets[row][batch.real[row]][-1] == 1
    assert (batch.inputs[:, 0] == 0).all()
    # the sign needs room too
    assert max(len(SOURCES[place]) for place in task.fitting) < 4 or len(task.fitting) < len(made().fitting)
