"""Neighbours in a grid."""

from dataclasses import dataclass, replace

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task

# right, down, left, up: rows, then columns
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


@dataclass(frozen=True, kw_only=True)
class Neighbours(Task):
    """What stands beside this symbol in a grid: to its right, below, to its left, above? Two dimensions read as one.

        a b
        c d     a b c d | a ↓ d ←  ->  c, c

    The grid is written row by row, so a neighbour below stands as many tokens on as there are columns. Symbols are
    all different. Sliced by `direction` (0 right, 1 down, 2 left, 3 up) and by `row` of the answer, from 0.

    Args:
        rows: of the grid.
        columns: of the grid.
        questions: in a sequence, each drawn by itself among the pairs that stand beside each other.
        symbols: different symbols there are.
    Raises:
        ValueError: a grid of one symbol, nothing asked, or more symbols in the grid than there are.
    """

    rows: int = 4
    columns: int = 4
    questions: int = 8
    symbols: int = 64

    def __post_init__(self) -> None:
        need_counts(rows=self.rows, columns=self.columns, questions=self.questions, symbols=self.symbols)
        need(
            min(self.rows, self.columns) > 0 and self.rows * self.columns > 1,
            "a grid needs neighbours",
            f"got rows={self.rows}, columns={self.columns}",
            "give two symbols at least",
        )
        need(self.questions > 0, "something must be asked", "got questions=0", "give 1 or more")
        need(
            self.rows * self.columns <= self.symbols,
            "the symbols of a grid are all different",
            f"got {self.rows * self.columns} of symbols={self.symbols}",
            "give more symbols, or a smaller grid",
        )

    @property
    def length(self) -> int:
        """The grid, and two tokens a question [tokens]."""
        return self.rows * self.columns + 2 * self.questions

    @property
    def vocabulary(self) -> int:
        """Symbols, then directions."""
        return self.symbols + len(STEPS)

    @property
    def chance(self) -> float:
        """Symbols are equally likely."""
        return 1 / self.symbols

    def longer(self, times: int) -> "Neighbours":
        """So many times as many rows and questions."""
        return replace(self, rows=times * self.rows, questions=times * self.questions)

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw the symbols, and which pairs of neighbours are asked for."""
        grid = torch.rand(count, self.symbols, generator=generator).argsort(1)[:, : self.rows * self.columns]
        pairs = torch.tensor(self._pairs())
        start, direction, end = pairs[torch.randint(len(pairs), (count, self.questions), generator=generator)].unbind(
            2
        )
        questions = torch.stack([grid.gather(1, start), self.symbols + direction], 2).flatten(1)
        answers = torch.stack([torch.full_like(end, SILENT), grid.gather(1, end)], 2).flatten(1)
        slices = {"direction": direction, "row": end // self.columns}
        return Batch(
            torch.cat([grid, questions], 1),
            torch.cat([torch.full_like(grid, SILENT), answers], 1),
            {
                name: torch.cat([torch.zeros_like(grid), numbers.repeat_interleave(2, 1)], 1)
                for name, numbers in slices.items()
            },
        )

    def _pairs(self) -> list[tuple[int, int, int]]:
        """Every place, direction, and the place there."""
        return [
            (row * self.columns + column, direction, (row + down) * self.columns + column + right)
            for row in range(self.rows)
            for column in range(self.columns)
            for direction, (down, right) in enumerate(STEPS)
            if 0 <= row + down < self.rows and 0 <= column + right < self.columns
        ]
