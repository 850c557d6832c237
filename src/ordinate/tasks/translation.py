"""Say a sentence in other words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from ordinate.batch import SILENT, Batch
from ordinate.checks import need
from ordinate.task import Reader, Task

Line = NDArray[np.integer[Any]]
# ids behind those of the tokenizer
SIGNS = 2


@dataclass(frozen=True)
class Signs:
    """The tokens that begin and end a text.

    Args:
        start: a target begins after it; it fills up what is shorter than its batch.
        end: ends a target.
        closes: whether it ends a source too, as published models are used to.
    """

    start: int
    end: int
    closes: bool = False


class Translation(Task):
    """Pairs of sentences, drawn from anywhere in them: the source is given, the target is to be said.

        source:   a b c        input:   ! x y        asked:   x y .

    Behind the tokens of the tokenizer stand two signs, unless others are given: `end`, which ends a target (`.`), and
    `start`, which it begins after (`!`) and which fills up what is shorter than its batch. Sliced by `place`: which
    token of the target is asked for, from 1.

    Args:
        sources: the tokens of each source.
        targets: the tokens of each target, without signs.
        tokens: different tokens of the tokenizer.
        length: longest source, and longest target with its end [tokens]; pairs with a longer side are left out.
        signs: those that a trained model is used to; None: behind the tokens of the tokenizer.
    Raises:
        ValueError: sides of unequal number, or no pair that is short enough.
    Source: Vaswani et al. 2017, section 5, https://arxiv.org/abs/1706.03762.
    """

    reader: ClassVar[Reader] = "encoder-decoder"

    def __init__(
        self,
        *,
        sources: Sequence[Line],
        targets: Sequence[Line],
        tokens: int,
        length: int,
        signs: Signs | None = None,
    ) -> None:
        need(
            len(sources) == len(targets),
            "each source has a target",
            f"got {len(sources)} and {len(targets)}",
            "give pairs",
        )
        self.sources, self.targets, self.tokens, self._length = sources, targets, tokens, length
        self.signs = Signs(end=tokens, start=tokens + 1) if signs is None else signs
        self.fitting = [
            place
            for place, (source, target) in enumerate(zip(sources, targets, strict=True))
            if 0 < len(source) <= length - self.signs.closes and len(target) < length
        ]
        need(
            bool(self.fitting),
            f"some pair must have at most {length} tokens on each side",
            f"none of {len(sources)} has",
            "give shorter pairs, or a larger --length",
        )

    @property
    def vocabulary(self) -> int:
        """The tokenizer's tokens and the signs."""
        return max(self.tokens, self.start + 1, self.end + 1)

    @property
    def end(self) -> int:
        """The sign that ends a target."""
        return self.signs.end

    @property
    def start(self) -> int:
        """The sign that a target begins after, and that fills up."""
        return self.signs.start

    @property
    def length(self) -> int:
        """The longest source, and the longest target [tokens]."""
        return self._length

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw pairs, each as likely."""
        chosen = torch.randint(len(self.fitting), (count,), generator=generator).tolist()
        return self.batch([self.fitting[place] for place in chosen])

    def batch(self, places: Sequence[int]) -> Batch:
        """The pairs at these places, filled up to the longest on each side."""
        source, source_real = self.read(places)
        asked, real = padded([np.append(self.targets[place], self.end) for place in places], self.start)
        inputs = torch.cat([torch.full_like(asked[:, :1], self.start), asked[:, :-1]], 1)
        place = torch.arange(1, inputs.shape[1] + 1).expand_as(inputs)
        targets = asked.masked_fill(~real, SILENT)
        return Batch(inputs, targets, {"place": place}, real, source, source_real)

    def read(self, places: Sequence[int]) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
        """The sources at these places, filled up to the longest, and which of their tokens are real."""
        last = [self.end] if self.signs.closes else []
        return padded([np.append(self.sources[place], np.array(last, np.int64)) for place in places], self.start)


def padded(lines: Sequence[Line], sign: int) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """Lines of several lengths as rows, filled up behind their tokens by a sign, and which tokens are real."""
    lengths = torch.tensor([len(line) for line in lines])
    real = torch.arange(int(lengths.max()) if lines else 0) < lengths[:, None]
    rows = torch.full(real.shape, sign)
    rows[real] = torch.from_numpy(np.concatenate(lines).astype(np.int64)) if lines else rows[real]
    return rows, real
