"""Paths in a picture."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import torch

from ordinate.batch import SILENT, Batch
from ordinate.checks import need, need_counts
from ordinate.task import Task

Cell = tuple[int, int]

BLANK, LINE, DOT = range(3)
APART, JOINED = 0, 1
# the eight directions, each beside its neighbours
DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
# a line is drawn for two cells, then left out for one
DASH = 3
TRIES = 10_000


@dataclass(frozen=True, kw_only=True)
class Pathfinder(Task):
    """Are the two dots joined by a dashed line? A picture, pixel after pixel and row after row.

    Every picture has two long dashed lines of one length and some short ones, and two dots at ends of long lines:
    both ends of one line, or one end of each, as likely and about as far apart. Lines keep apart by more than their
    gaps are wide, so that what is joined is never in doubt. The answer, 1 for joined and 0 for apart, is asked at the
    last pixel. Sliced by `path` (cells from end to end of the long lines) and by `joined`.

    Args:
        side: pixels of a side.
        distractors: short lines.
    Raises:
        ValueError: a picture too small for its lines.
    Source: after Linsley et al. 2018, https://arxiv.org/abs/1805.08315, and Tay et al. 2021, Long Range Arena,
        https://arxiv.org/abs/2011.04006: there 32 and 128 pixels a side.
    Departs: smaller; three shades in place of 256; lines are walks on the grid that turn by 45 degrees at most.
    """

    side: int = 12
    distractors: int = 2

    def __post_init__(self) -> None:
        need_counts(side=self.side, distractors=self.distractors)
        need(self.side >= 8, "pathfinder needs eight pixels a side", f"got side={self.side}", "give 8 or more")
        most = (self.side // 6) ** 2
        need(
            self.distractors <= most,
            f"a picture of {self.side} pixels a side has room for {most} short lines",
            f"got distractors={self.distractors}",
            "give fewer, or a larger side",
        )

    @property
    def length(self) -> int:
        """Pixels of a picture [tokens]."""
        return self.side**2

    @property
    def vocabulary(self) -> int:
        """Blank, line and dot."""
        return 3

    @property
    def chance(self) -> float:
        """Joined is as likely as apart."""
        return 0.5

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw pictures."""
        random = Random(int(torch.randint(2**62, (), generator=generator)))
        drawn = [self._picture(random) for _ in range(count)]
        inputs = torch.tensor([pixels for pixels, _, _ in drawn])
        joined, path = (torch.tensor([[one[place]] for one in drawn]).expand_as(inputs) for place in (1, 2))
        targets = torch.full_like(inputs, SILENT)
        targets[:, -1] = joined[:, -1]
        return Batch(inputs, targets, {"path": path, "joined": joined})

    def _picture(self, random: Random) -> tuple[list[int], int, int]:
        """The pixels, whether the dots are joined, and the length of the long lines."""
        joined, path = random.randrange(2), random.randint(self.side // 2, 3 * self.side // 4)
        for _ in range(TRIES):
            lines = self._lines(random, [path, path] + [DASH] * self.distractors)
            if lines:
                return self._drawn(lines, _ends(lines[0], lines[1], joined)), joined, path
        raise ValueError(f"the lines must fit into the picture; {TRIES} tries failed; give fewer, or a larger side")

    def _lines(self, random: Random, sizes: Iterable[int]) -> list[list[Cell]] | None:
        """Lines of these many cells, none near another; None if there is no room."""
        lines: list[list[Cell]] = []
        taken: set[Cell] = set()
        for size in sizes:
            line = next((walk for _ in range(20) if (walk := self._walk(random, size, taken))), None)
            if line is None:
                return None
            lines.append(line)
            taken |= {(y + dy, x + dx) for y, x in line for dy in range(-2, 3) for dx in range(-2, 3)}
        return lines

    def _walk(self, random: Random, size: int, taken: set[Cell]) -> list[Cell] | None:
        """A line of so many cells that meets neither itself nor what is taken."""
        cells = [(random.randrange(self.side), random.randrange(self.side))]
        if cells[0] in taken:
            return None
        heading = random.randrange(8)
        while len(cells) < size:
            heading += random.choice((-1, 0, 0, 1))
            dy, dx = DIRECTIONS[heading % 8]
            cell = (cells[-1][0] + dy, cells[-1][1] + dx)
            inside = 0 <= cell[0] < self.side and 0 <= cell[1] < self.side
            if not inside or cell in taken or cell in cells:
                return None
            cells.append(cell)
        return cells

    def _drawn(self, lines: list[list[Cell]], dots: Iterable[Cell]) -> list[int]:
        pixels = [BLANK] * self.length
        for line in lines:
            for place, (y, x) in enumerate(line):
                if place % DASH != DASH - 1 or place == len(line) - 1:
                    pixels[y * self.side + x] = LINE
        for y, x in dots:
            pixels[y * self.side + x] = DOT
        return pixels


def _ends(first: list[Cell], second: list[Cell], joined: int) -> tuple[Cell, Cell]:
    """Both ends of the first line; or one of each, about as far apart, so that distance gives nothing away."""
    own = (first[0], first[-1])
    if joined == JOINED:
        return own
    pairs = [(one, other) for one in own for other in (second[0], second[-1])]
    return min(pairs, key=lambda pair: abs(_distance(*pair) - _distance(*own)))


def _distance(one: Cell, other: Cell) -> int:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))
