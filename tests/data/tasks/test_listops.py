import statistics

import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks import listops
from ordinate.data.tasks.listops import PAD, Listops

NAMES = {10: "MIN", 11: "MAX", 12: "MED", 13: "SM"}


def solve(tokens):
    """Work a list out with a stack: its value, and how deep it was nested."""
    stack, deepest = [], 0
    for token in tokens:
        if token in NAMES:
            stack.append((NAMES[token], []))
            deepest = max(deepest, len(stack))
        elif token == 14:
            name, values = stack.pop()
            value = {
                "MIN": min(values),
                "MAX": max(values),
                # as numpy's median, which the published generator rounds down
                "MED": int(statistics.median(values)),
                "SM": sum(values) % 10,
            }[name]
            if not stack:
                return value, deepest
            stack[-1][1].append(value)
        else:
            stack[-1][1].append(token)
    raise AssertionError("the list does not end")


@pytest.mark.parametrize("options", [{}, {"length": 20, "shortest": 4}, {"length": 128, "depth": 6, "arguments": 10}])
def test_the_target_equals_a_stack_evaluation(options):
    task = Listops(**options)
    batch = task.sample(torch.Generator().manual_seed(0), 60)
    for row, targets in enumerate(batch.targets.tolist()):
        (place,) = [place for place, target in enumerate(targets) if target != IGNORE_INDEX]
        tokens = batch.inputs[row].tolist()
        assert set(tokens[place + 1 :]) <= {PAD}
        assert (targets[place], batch.slices["depth"][row, place]) == solve(tokens[: place + 1])
        assert batch.slices["size"][row, place] == place + 1
        assert task.min_length <= place + 1 <= task.length


def test_levels_and_arguments_keep_their_limits():
    batch = Listops(length=60, shortest=4, depth=3, arguments=3).sample(torch.Generator().manual_seed(0), 100)
    assert sorted(batch.slices["depth"].unique().tolist()) == [1, 2]
    # an operation, at most three arguments, of which each is a digit or a list of three digits
    assert int(batch.slices["size"].max()) <= 2 + 3 * 5


def test_a_quarter_of_the_arguments_are_lists():
    # no list of these sizes is too short or too long, so none is drawn again
    inputs = Listops(length=20, shortest=4, depth=3, arguments=2).sample(torch.Generator().manual_seed(0), 500).inputs
    inner = ((inputs >= 10) & (inputs < 14)).sum(1) - 1
    assert 0.21 < inner.float().mean() / 2 < 0.29


def test_operations_are_equally_likely():
    inputs = Listops().sample(torch.Generator().manual_seed(0), 300).inputs
    counts = torch.stack([(inputs == operation).sum() for operation in NAMES]).float()
    assert (counts / counts.sum() - 0.25).abs().max() < 0.04


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 1}, "listops needs a depth of at least 2; got depth=1"),
        ({"arguments": 1}, "lists need at least 2 arguments; got arguments=1"),
        ({"length": 3}, "have 4 to 4687 tokens; got shortest=0 and length=3"),
        ({"depth": 2, "shortest": 9}, "have 4 to 7 tokens; got shortest=9 and length=64"),
        ({"length": 20, "shortest": 21}, "got shortest=21 and length=20"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Listops(**options)


def test_the_search_for_rare_lists_ends(monkeypatch):
    monkeypatch.setattr(listops, "MAX_TRIES", 300)
    with pytest.raises(
        ValueError, match="lists of these lengths must be found; none in 300 tries; give other lengths"
    ):
        Listops(depth=3, arguments=12, length=170, shortest=169).sample(torch.Generator().manual_seed(0), 1)
