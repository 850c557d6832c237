"""Predict the next token of a text."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordinate.batch import Batch
from ordinate.checks import need
from ordinate.task import Task


class Text(Task):
    """Windows of a text, drawn from anywhere in it; at each place the next token is to be said.

    Args:
        tokens: the text, in memory or on disk.
        vocabulary: how many different tokens there are.
        length: tokens of a window.
    Raises:
        ValueError: a text shorter than one window and its next token.
    """

    def __init__(self, *, tokens: NDArray[np.integer[Any]], vocabulary: int, length: int) -> None:
        need(
            len(tokens) > length,
            f"the text must hold at least {length + 1} tokens",
            f"it holds {len(tokens)}",
            "give more text, or a smaller --length",
        )
        self.tokens, self._length, self._vocabulary = tokens, length, vocabulary

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are."""
        return self._vocabulary

    @property
    def length(self) -> int:
        """Tokens of a window."""
        return self._length

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Windows that begin anywhere, each place as likely."""
        starts = torch.randint(len(self.tokens) - self.length, (count,), generator=generator).tolist()
        rows = np.stack([self.tokens[start : start + self.length + 1] for start in starts]).astype(np.int64)
        windows = torch.from_numpy(rows)
        return Batch(windows[:, :-1], windows[:, 1:])
