"""Neighbour lookup in a grid."""

from dataclasses import dataclass, replace

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

# right, down, left, up: rows, then columns
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


@dataclass(frozen=True, kw_only=True)
class Neighbours(Task):
    """Neighbour lookup in a grid of symbols that is flattened row by row.

        a b
        c d     a b c d | a ↓ d ←  ->  c, c

    A query is a symbol and a direction; the neighbour below is `columns` tokens ahead. The symbols of a grid are
    distinct. Sliced by `direction` (0 right, 1 down, 2 left, 3 up) and by `row` of the answer, from 0.

    Args:
        rows: rows of the grid.
        columns: columns of the grid.
        questions: queries per sequence, drawn independently from all pairs of neighbours.
        symbols: size of the symbol alphabet.
    Raises:
        ValueError: a grid of a single symbol, no queries, or more cells than symbols.
    """

    rows: int = 4
    columns: int = 4
    questions: int = 8
    symbols: int = 64

    def __post_init__(self) -> None:
        need_counts(rows=self.rows, columns=self.columns, questions=self.questions, symbols=self.symbols)
        need(
            min(self.rows, self.columns) > 0 and self.rows * self.columns > 1,
            "a grid needs at least two cells",
            f"got rows={self.rows}, columns={self.columns}",
            "give more rows or columns",
        )
        need(self.questions > 0, "at least one query is needed", "got questions=0", "give 1 or more")
        need(
            self.rows * self.columns <= self.symbols,
            "a grid needs a distinct symbol for each of its rows x columns cells",
            f"got rows={self.rows}, columns={self.columns} for symbols={self.symbols}",
            "give more symbols, or a smaller grid",
        )

    @property
    def length(self) -> int:
        """The grid, and two tokens per query [tokens]."""
        return self.rows * self.columns + 2 * self.questions

    @property
    def vocabulary(self) -> int:
        """Ids of the symbols, then of the directions."""
        return self.symbols + len(STEPS)

    @property
    def baseline_accuracy(self) -> float:
        return 1 / self.symbols

    def longer(self, times: int) -> "Neighbours":
        """Return the task with `times` times as many rows and queries."""
        return replace(self, rows=times * self.rows, questions=times * self.questions)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols and the queried pairs of neighbours."""
        grid = torch.rand(count, self.symbols, generator=generator).argsort(1)[:, : self.rows * self.columns]
        pairs = torch.tensor(self._pairs())
        start, direction, end = pairs[torch.randint(len(pairs), (count, self.questions), generator=generator)].unbind(
            2
        )
        questions = torch.stack([grid.gather(1, start), self.symbols + direction], 2).flatten(1)
        answers = torch.stack([torch.full_like(end, IGNORE_INDEX), grid.gather(1, end)], 2).flatten(1)
        slices = {"direction": direction, "row": end // self.columns}
        return Batch(
            torch.cat([grid, questions], 1),
            torch.cat([torch.full_like(grid, IGNORE_INDEX), answers], 1),
            {
                name: torch.cat([torch.zeros_like(grid), numbers.repeat_interleave(2, 1)], 1)
                for name, numbers in slices.items()
            },
        )

    def _pairs(self) -> list[tuple[int, int, int]]:
        """Return every (cell, direction, neighbouring cell)."""
        return [
            (row * self.columns + column, direction, (row + down) * self.columns + column + right)
            for row in range(self.rows)
            for column in range(self.columns)
            for direction, (down, right) in enumerate(STEPS)
            if 0 <= row + down < self.rows and 0 <= column + right < self.columns
        ]
