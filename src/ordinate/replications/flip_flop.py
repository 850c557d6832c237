"""The flip-flop language: texts whose answer is the last bit written, however long ago."""

import torch
from jaxtyping import Bool
from torch import Tensor

from ordinate.core.shapes import Ids, Logits
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task

TOKENS, SYMBOLS = 64, 5
# two symbols each, by their bit; a read has one
WRITE, IGNORE, READ = 0, 2, 4
# share of ignored bits in training, and in texts whose last write is ten times as far back
IGNORED, SPARSE = 0.8, 0.98


class FlipFlop(Task):
    """Bits that are written, ignored or read; the target of a read is the bit written last.

    The first token writes, the last one reads. Writes and reads share what is not ignored.
    """

    @property
    def vocabulary(self) -> int:
        return SYMBOLS

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        rows = flip_flops(generator, count, IGNORED)
        return Batch(rows, torch.where(rows == READ, last_written(rows), IGNORE_INDEX))


def flip_flops(generator: torch.Generator, count: int, ignored: float) -> Ids:
    """Draw texts of the flip-flop language.

    Args:
        generator: source of randomness.
        count: number of texts.
        ignored: probability that a bit is to be ignored.
    """
    bits = torch.randint(2, (count, TOKENS), generator=generator)
    drawn = torch.rand(count, TOKENS, generator=generator)
    rows = torch.where(drawn < ignored, IGNORE + bits, torch.where(drawn < (1 + ignored) / 2, WRITE + bits, READ))
    rows[:, 0], rows[:, -1] = WRITE + bits[:, 0], READ
    return rows


def last_written(rows: Ids) -> Ids:
    """Return, for each place, the bit that was written last, there or before; texts begin with a write."""
    places = torch.where(is_write(rows), torch.arange(rows.shape[1]), 0).cummax(1).values
    return rows.gather(1, places) - WRITE


def is_write(rows: Ids) -> Bool[Tensor, "texts tokens"]:
    """Return where a bit is written."""
    return rows < IGNORE


def read_error(logits: Logits, rows: Ids) -> float:
    """Return the share of reads whose more likely bit is not the one written last; 0.5 is guessing."""
    wrong = logits[..., :2].argmax(-1) != last_written(rows)
    return float(wrong[rows == READ].double().mean())
