import pytest
import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.data.tasks.neighbours import Neighbours


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (3, 2), (2, 5)])
def test_the_target_is_the_neighbour(rows, columns):
    task = Neighbours(rows=rows, columns=columns, questions=6, symbols=12)
    batch = task.sample(torch.Generator().manual_seed(0), 200)
    asked = set()
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        size = rows * columns
        grid = [inputs[row * columns : (row + 1) * columns] for row in range(rows)]
        where = {symbol: (row, column) for row, line in enumerate(grid) for column, symbol in enumerate(line)}
        assert len(where) == size
        assert targets[:size] == [IGNORE_INDEX] * size
        for symbol, direction, silent, answer in zip(
            inputs[size::2], inputs[size + 1 :: 2], targets[size::2], targets[size + 1 :: 2], strict=True
        ):
            assert silent == IGNORE_INDEX
            row, column = where[symbol]
            beside = [(row, column + 1), (row + 1, column), (row, column - 1), (row - 1, column)][direction - 12]
            assert where[answer] == beside
            asked.add(direction - 12)
    assert asked == ({0, 2} if rows == 1 else {0, 1, 2, 3})


def test_slices_are_the_direction_and_the_row_of_the_answer():
    batch = Neighbours(rows=3, columns=2, questions=2, symbols=6).sample(torch.Generator().manual_seed(1), 50)
    for inputs, targets, direction, row in zip(
        batch.inputs, batch.targets, batch.slices["direction"], batch.slices["row"], strict=True
    ):
        for place in (7, 9):
            assert direction[place] == inputs[place] - 6
            assert row[place] == (inputs[:6] == targets[place]).nonzero().item() // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 1, "columns": 1}, "a grid needs at least two cells"),
        ({"questions": 0}, "at least one query is needed"),
        ({"rows": 9, "columns": 9}, "got rows=9, columns=9 for symbols=64"),
    ],
)
def test_invalid_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Neighbours(**options)
