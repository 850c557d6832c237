"""Pathfinder: path connectivity in images."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import torch

from ordinate.core.checks import need, need_counts
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

Cell = tuple[int, int]

BLANK, LINE, DOT = range(3)
NOT_JOINED, JOINED = 0, 1
# the eight directions in angular order
DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
# dash period: two cells drawn, one blank
DASH = 3
MAX_TRIES = 10_000


@dataclass(frozen=True, kw_only=True)
class Pathfinder(Task):
    """Pathfinder: decide whether a dashed line connects two dots, in an image flattened row by row.

    Every image has two long dashed lines of equal length, some short ones, and two dots at ends of long lines: both
    ends of one line, or one end of each, equally likely and at about the same distance. The distance between lines is
    larger than the gaps of a line, so that connectivity is unambiguous. The target, 1 for connected and 0 otherwise,
    is at the last pixel. Sliced by `path` (length of the long lines in cells) and by `joined`.

    Args:
        side: height and width of the image [pixels].
        distractors: number of short lines.
    Raises:
        ValueError: an image too small for its lines.
    Source: after Linsley et al. 2018, https://arxiv.org/abs/1805.08315, and Tay et al. 2021, Long Range Arena,
        https://arxiv.org/abs/2011.04006, which has sides of 32 and 128 pixels.
    Departs: smaller; 3 grey levels instead of 256; lines are walks on the grid that turn by at most 45 degrees.
    """

    side: int = 12
    distractors: int = 2

    def __post_init__(self) -> None:
        need_counts(side=self.side, distractors=self.distractors)
        need(self.side >= 8, "pathfinder needs a side of at least 8", f"got side={self.side}", "give 8 or more")
        most = (self.side // 6) ** 2
        need(
            self.distractors <= most,
            f"an image with a side of {self.side} pixels has room for {most} short lines",
            f"got distractors={self.distractors}",
            "give fewer, or a larger side",
        )

    @property
    def length(self) -> int:
        """Pixels of an image [tokens]."""
        return self.side**2

    @property
    def vocabulary(self) -> int:
        """Ids of blank, line and dot."""
        return 3

    @property
    def baseline_accuracy(self) -> float:
        """Both answers are equally likely."""
        return 0.5

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        random = Random(int(torch.randint(2**62, (), generator=generator)))
        drawn = [self._image(random) for _ in range(count)]
        inputs = torch.tensor([pixels for pixels, _, _ in drawn])
        joined, path = (torch.tensor([[one[field]] for one in drawn]).expand_as(inputs) for field in (1, 2))
        targets = torch.full_like(inputs, IGNORE_INDEX)
        targets[:, -1] = joined[:, -1]
        return Batch(inputs, targets, {"path": path, "joined": joined})

    def _image(self, random: Random) -> tuple[list[int], int, int]:
        """Draw an image: its pixels, whether the dots are connected, and the length of the long lines."""
        joined, path = random.randrange(2), random.randint(self.side // 2, 3 * self.side // 4)
        for _ in range(MAX_TRIES):
            lines = self._lines(random, [path, path] + [DASH] * self.distractors)
            if lines:
                return self._drawn(lines, _ends(lines[0], lines[1], joined)), joined, path
        raise ValueError(f"the lines must fit into the image; {MAX_TRIES} tries failed; give fewer, or a larger side")

    def _lines(self, random: Random, sizes: Iterable[int]) -> list[list[Cell]] | None:
        """Draw lines of these lengths, none close to another; None if there is no room."""
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
        """Draw a self-avoiding walk of `size` cells outside `taken`; None if it gets stuck."""
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
            for step, (y, x) in enumerate(line):
                if step % DASH != DASH - 1 or step == len(line) - 1:
                    pixels[y * self.side + x] = LINE
        for y, x in dots:
            pixels[y * self.side + x] = DOT
        return pixels


def _ends(first: list[Cell], second: list[Cell], joined: int) -> tuple[Cell, Cell]:
    """Return both ends of the first line, or one end of each line.

    The distance between the ends is similar in both cases, so that it does not reveal the answer.
    """
    own = (first[0], first[-1])
    if joined == JOINED:
        return own
    pairs = [(one, other) for one in own for other in (second[0], second[-1])]
    return min(pairs, key=lambda pair: abs(_distance(*pair) - _distance(*own)))


def _distance(one: Cell, other: Cell) -> int:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))
