"""The synthetic text of replications that train: random segments of symbols, each repeated."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ordinate.core.shapes import Ids, Logits
from ordinate.data.batch import Batch
from ordinate.data.task import Task

SYMBOLS, TOKENS = 16, 32
SHORTEST, LONGEST = 5, 14

Periods = Int[Tensor, "texts"]


class Repeats(Task):
    """Next-token prediction on a random segment that is repeated; its length varies from text to text.

    The symbols of a segment are all different. A head that attends at one distance copies one length only.
    """

    @property
    def vocabulary(self) -> int:
        return SYMBOLS

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        rows, _ = repeats(generator, count)
        return Batch(rows[:, :-1], rows[:, 1:])


def repeats(generator: torch.Generator, count: int) -> tuple[Ids, Periods]:
    """Draw rows of TOKENS + 1 symbols, each a segment repeated, and the lengths of the segments."""
    periods = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=generator)
    symbols = torch.rand(count, SYMBOLS, generator=generator).argsort(1)
    return symbols.gather(1, torch.arange(TOKENS + 1) % periods[:, None]), periods


def split_losses(logits: Logits, targets: Ids, periods: Periods) -> tuple[float, float]:
    """Return the loss of symbols that cannot be copied and of those that can [nats]."""
    nats = nn.functional.cross_entropy(logits.mT, targets, reduction="none")
    # the first symbol of the second period is new: nothing shows that the segment ends there
    copied = torch.arange(1, TOKENS + 1) > periods[:, None]
    return float(nats[~copied].mean()), float(nats[copied].mean())


def copying_gain(logits: Logits, targets: Ids, periods: Periods) -> float:
    """Return the loss of symbols that cannot be copied minus that of those that can [nats]."""
    new, copied = split_losses(logits, targets, periods)
    return new - copied
