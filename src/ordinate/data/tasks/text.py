"""Language modelling: next-token prediction."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordinate.core.checks import need
from ordinate.data.batch import Batch
from ordinate.data.task import Task


class Text(Task):
    """Next-token prediction on random windows of a text.

    Args:
        tokens: the text, in memory or memory-mapped.
        vocabulary: vocabulary size.
        length: window length [tokens].
    Raises:
        ValueError: a text shorter than one window and its next token.
    """

    def __init__(self, *, tokens: NDArray[np.integer[Any]], vocabulary: int, length: int) -> None:
        need(
            len(tokens) > length,
            f"the text must have at least {length + 1} tokens",
            f"it has {len(tokens)}",
            "give more text, or a smaller --length",
        )
        self.tokens, self._length, self._vocabulary = tokens, length, vocabulary

    @property
    def vocabulary(self) -> int:
        return self._vocabulary

    @property
    def length(self) -> int:
        return self._length

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw windows with uniformly random start."""
        starts = torch.randint(len(self.tokens) - self.length, (count,), generator=generator).tolist()
        rows = np.stack([self.tokens[start : start + self.length + 1] for start in starts]).astype(np.int64)
        windows = torch.from_numpy(rows)
        return Batch(windows[:, :-1], windows[:, 1:])
