import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.pathfinder import Pathfinder


def reached(cells, start):
    """All cells that can be reached by steps of two pixels at most, as wide as a gap."""
    found, todo = {start}, [start]
    while todo:
        y, x = todo.pop()
        near = {(y + dy, x + dx) for dy in range(-2, 3) for dx in range(-2, 3)} & cells - found
        found |= near
        todo += near
    return found


def read(picture):
    side = len(picture)
    cells = {(y, x) for y in range(side) for x in range(side) if picture[y][x]}
    dots = [(y, x) for y, x in sorted(cells) if picture[y][x] == 2]
    return cells, dots


@pytest.mark.parametrize("side", [8, 12, 16])
def test_the_answer_is_whether_one_dot_can_be_reached_from_the_other(side):
    task = Pathfinder(side=side, distractors=1)
    batch = task.sample(torch.Generator().manual_seed(0), 40)
    assert (batch.targets[:, :-1] == IGNORE_INDEX).all()
    for row, pixels in enumerate(batch.inputs.view(-1, side, side).tolist()):
        cells, (one, other) = read(pixels)
        assert (other in reached(cells, one)) == bool(batch.targets[row, -1])
        assert batch.slices["joined"][row, -1] == batch.targets[row, -1]


def test_every_picture_has_two_long_lines_and_its_distractors():
    batch = Pathfinder(side=16, distractors=3).sample(torch.Generator().manual_seed(1), 20)
    for pixels in batch.inputs.view(-1, 16, 16).tolist():
        cells, _ = read(pixels)
        lines = set()
        for cell in cells:
            lines.add(frozenset(reached(cells, cell)))
        assert len(lines) == 5


def test_long_lines_are_of_several_lengths():
    batch = Pathfinder().sample(torch.Generator().manual_seed(0), 100)
    assert sorted(batch.slices["path"].unique().tolist()) == [6, 7, 8, 9]


def test_neither_ink_nor_the_distance_of_the_dots_reveals_the_answer():
    batch = Pathfinder().sample(torch.Generator().manual_seed(0), 500)
    joined = batch.targets[:, -1]
    apart = []
    for pixels in batch.inputs.view(-1, 12, 12).tolist():
        _, ((y, x), (v, u)) = read(pixels)
        apart.append(max(abs(y - v), abs(x - u)))
    for number in (torch.tensor(apart), (batch.inputs > 0).sum(1)):
        best = max(float(((number > edge) == joined.bool()).float().mean() - 0.5).__abs__() for edge in range(40))
        assert best < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"side": 7}, "a side of at least 8; got side=7"),
        ({"side": 12, "distractors": 5}, "a side of 12 pixels has room for 4 short lines; got distractors=5"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Pathfinder(**options)
