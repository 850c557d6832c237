"""The contract of tasks."""

import pytest
import torch

from ordinate.core import catalog
from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.task import Task

# the others are made of what is given to them
NAMES = [
    name
    for name in catalog.names("ordinate.data.tasks")
    if all(
        option.default is not option.empty
        for option in catalog.options(catalog.load("ordinate.data.tasks", Task, name)).values()
    )
]
# its expressions are drawn one symbol after another: thousands of them take seconds
MANY = [pytest.param(name, marks=pytest.mark.extended if name == "listops" else ()) for name in NAMES]


def made(name, **options):
    return catalog.load("ordinate.data.tasks", Task, name)(**options)


def drawn(task, seed=0, count=32):
    return task.sample(torch.Generator().manual_seed(seed), count)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_function_of_its_generator(name):
    task = made(name)
    torch.manual_seed(1)
    one = drawn(task)
    torch.manual_seed(2)
    same, other = drawn(task), drawn(task, seed=1)
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.targets, same.targets)
    assert not torch.equal(one.inputs, other.inputs)
    assert all(torch.equal(one.slices[key], same.slices[key]) for key in one.slices)


@pytest.mark.parametrize("name", NAMES)
def test_one_generator_gives_one_batch_after_another(name):
    generator = torch.Generator().manual_seed(0)
    first, second = (made(name).sample(generator, 8).inputs for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 7])
def test_a_batch_has_its_sizes_and_asks_something_of_each_sequence(name, count):
    task = made(name)
    batch = drawn(task, count=count)
    assert batch.inputs.shape == batch.targets.shape == (count, task.length)
    assert (batch.targets != IGNORE_INDEX).any(1).all()
    assert 0 <= int(batch.inputs.min()) <= int(batch.inputs.max()) < task.vocabulary
    answers = batch.targets[batch.targets != IGNORE_INDEX]
    assert 0 <= int(answers.min()) <= int(answers.max()) < task.vocabulary


@pytest.mark.parametrize("name", NAMES)
def test_every_question_belongs_to_a_slice_of_each_kind(name):
    batch = drawn(made(name), count=64)
    assert batch.slices
    for numbers in batch.slices.values():
        assert numbers.shape == batch.targets.shape
        assert (numbers[batch.targets != IGNORE_INDEX] >= 0).all()
        assert numbers[batch.targets != IGNORE_INDEX].unique().numel() > 1


@pytest.mark.parametrize("name", MANY)
def test_the_most_frequent_answer_has_the_baseline_accuracy(name):
    task = made(name)
    batch = drawn(task, seed=5, count=500)
    answers = batch.targets[batch.targets != IGNORE_INDEX]
    share = answers.bincount().max() / len(answers)
    # the commonest of many is a little more common than it should be
    assert task.baseline_accuracy - 0.04 < share < task.baseline_accuracy + 0.04


@pytest.mark.parametrize("name", MANY)
def test_the_token_at_the_question_is_not_the_answer(name):
    task = made(name)
    batch = drawn(task, count=500)
    asked = batch.targets != IGNORE_INDEX
    assert (batch.inputs == batch.targets)[asked].float().mean() < task.baseline_accuracy + 0.05


@pytest.mark.parametrize("name", NAMES)
def test_longer_sequences_have_the_same_vocabulary(name):
    task = made(name)
    try:
        longer = task.longer(2)
    except ValueError as error:
        assert "has a fixed length" in str(error)  # noqa: PT017
        return
    assert longer.vocabulary == task.vocabulary
    # signs between the parts are not doubled
    assert abs(longer.length - 2 * task.length) <= 2
    assert drawn(longer).inputs.shape == (32, longer.length)
    assert task.longer(1) == task


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_a_value_that_refuses_what_it_does_not_know(name):
    task = made(name)
    assert task == made(name)
    assert hash(task) == hash(made(name))
    with pytest.raises(TypeError, match="unexpected keyword"):
        made(name, colour=1)
    with pytest.raises(AttributeError):
        task.colour = 1
