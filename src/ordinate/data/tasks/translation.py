"""Translation: sequence-to-sequence prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from ordinate.core.checks import need
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import ModelKind, Task

Line = NDArray[np.integer[Any]]
# number of special ids appended to the tokenizer's vocabulary
SPECIAL_TOKEN_COUNT = 2


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens of source and target.

    Args:
        start: decoder start token, prepended to a target; also the padding token.
        end: end token, appended to a target.
        end_source: whether `end` is appended to the source too, as published models expect.
    """

    start: int
    end: int
    end_source: bool = False


class Translation(Task):
    """Sequence-to-sequence prediction of a target sentence given its source.

        source:   a b c        input:   ! x y        target:   x y .

    Two special tokens follow the tokenizer's vocabulary, unless others are given: `end` (`.`) is appended to a
    target; `start` (`!`) is prepended to the decoder input, and is the padding token. Sliced by `place`: index of the
    target token, from 1.

    Args:
        sources: tokens of each source.
        targets: tokens of each target, without special tokens.
        tokens: vocabulary size of the tokenizer.
        length: maximum length of a source, and of a target with its end token; longer pairs are left out [tokens].
        special_tokens: special tokens of a pre-trained model; None: two ids after the tokenizer's vocabulary.
    Raises:
        ValueError: unequal numbers of sources and targets, or no pair that is short enough.
    Source: Vaswani et al. 2017, section 5, https://arxiv.org/abs/1706.03762.
    """

    model_kind: ClassVar[ModelKind] = "encoder-decoder"

    def __init__(
        self,
        *,
        sources: Sequence[Line],
        targets: Sequence[Line],
        tokens: int,
        length: int,
        special_tokens: SpecialTokens | None = None,
    ) -> None:
        need(
            len(sources) == len(targets),
            "each source needs a target",
            f"got {len(sources)} and {len(targets)}",
            "give pairs",
        )
        self.sources, self.targets, self.tokens, self._length = sources, targets, tokens, length
        self.special_tokens = (
            SpecialTokens(end=tokens, start=tokens + 1) if special_tokens is None else special_tokens
        )
        self.usable = [
            index
            for index, (source, target) in enumerate(zip(sources, targets, strict=True))
            if 0 < len(source) <= length - self.special_tokens.end_source and len(target) < length
        ]
        need(
            bool(self.usable),
            f"at least one pair must have at most {length} tokens on each side",
            f"none of {len(sources)} has",
            "give shorter pairs, or a larger --length",
        )

    @property
    def vocabulary(self) -> int:
        """Vocabulary size, special tokens included."""
        return max(self.tokens, self.start + 1, self.end + 1)

    @property
    def end(self) -> int:
        """The end token."""
        return self.special_tokens.end

    @property
    def start(self) -> int:
        """The decoder start token, also used for padding."""
        return self.special_tokens.start

    @property
    def length(self) -> int:
        """Maximum length of a source and of a target [tokens]."""
        return self._length

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw pairs uniformly at random."""
        chosen = torch.randint(len(self.usable), (count,), generator=generator).tolist()
        return self.batch([self.usable[index] for index in chosen])

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the pairs of these indices, padded to the longest source and target."""
        source, source_mask = self.read(indices)
        asked, real = pad_right([np.append(self.targets[index], self.end) for index in indices], self.start)
        inputs = torch.cat([torch.full_like(asked[:, :1], self.start), asked[:, :-1]], 1)
        place = torch.arange(1, inputs.shape[1] + 1).expand_as(inputs)
        targets = asked.masked_fill(~real, IGNORE_INDEX)
        return Batch(inputs, targets, {"place": place}, real, source, source_mask)

    def read(self, indices: Sequence[int]) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
        """Return the sources of these indices, padded to the longest, and the padding mask (True at real tokens)."""
        last = [self.end] if self.special_tokens.end_source else []
        return pad_right([np.append(self.sources[index], np.array(last, np.int64)) for index in indices], self.start)


def pad_right(lines: Sequence[Line], padding: int) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """Right-pad sequences with the token `padding`; return them and their padding mask (True at real tokens)."""
    lengths = torch.tensor([len(line) for line in lines])
    real = torch.arange(int(lengths.max()) if lines else 0) < lengths[:, None]
    rows = torch.full(real.shape, padding)
    rows[real] = torch.from_numpy(np.concatenate(lines).astype(np.int64)) if lines else rows[real]
    return rows, real
