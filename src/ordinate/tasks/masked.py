"""Say the hidden tokens of a text."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordinate.batch import SILENT, Batch
from ordinate.checks import need
from ordinate.task import Task


class Masked(Task):
    """Windows of a text, some of whose tokens are hidden and to be said, from what stands before and after them.

    Each token is chosen with the same chance, and at least one of each window. Most of those chosen are replaced by
    the mask, some by any token, and some stay as they are, so that a model cannot tell which of the tokens that it
    sees are to be trusted.

    Args:
        tokens: the text, in memory or on disk.
        vocabulary: how many different tokens there are, the mask included.
        length: tokens of a window.
        mask: the token that stands for a hidden one; None: the last of the vocabulary.
        share: how many of the tokens are chosen.
        hidden: how many of those chosen the mask replaces.
        swapped: how many of those chosen another token replaces, any but the mask; the rest stays as it is.
    Raises:
        ValueError: a text shorter than a window, a mask beyond the vocabulary, or shares that are none.
    Source: Devlin et al. 2019, BERT, section 3.1 and appendix C.2, https://arxiv.org/abs/1810.04805.
    Departs: shares of each token by itself, not of each window; never none.
    """

    reader = "encoder"

    def __init__(
        self,
        *,
        tokens: NDArray[np.integer[Any]],
        vocabulary: int,
        length: int,
        mask: int | None = None,
        share: float = 0.15,
        hidden: float = 0.8,
        swapped: float = 0.1,
    ) -> None:
        need(
            len(tokens) >= length,
            f"the text must hold at least {length} tokens",
            f"it holds {len(tokens)}",
            "give more text, or a smaller --length",
        )
        self.mask = vocabulary - 1 if mask is None else mask
        need(
            0 <= self.mask < vocabulary and vocabulary > 1,
            f"the mask is one of {vocabulary} tokens, and not the only one",
            f"got {self.mask}",
            "count it in the vocabulary",
        )
        need(0 < share <= 1, "share lies above 0 and up to 1", f"got {share}", "0.15 is usual")
        need(
            min(hidden, swapped) >= 0 and hidden + swapped <= 1,
            "hidden and swapped are shares of the chosen tokens",
            f"got {hidden} and {swapped}",
            "0.8 and 0.1 are usual",
        )
        self.tokens, self._length, self._vocabulary = tokens, length, vocabulary
        self.share, self.hidden, self.swapped = share, hidden, swapped

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are, the mask included."""
        return self._vocabulary

    @property
    def length(self) -> int:
        """Tokens of a window."""
        return self._length

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Windows that begin anywhere, each place as likely."""
        starts = torch.randint(len(self.tokens) - self.length + 1, (count,), generator=generator).tolist()
        rows = np.stack([self.tokens[start : start + self.length] for start in starts]).astype(np.int64)
        return self.hide(torch.from_numpy(rows), generator)

    def hide(self, windows: torch.Tensor, generator: torch.Generator) -> Batch:
        """Hide some tokens of these windows (b, n)."""
        drawn, kind = (torch.rand(windows.shape, generator=generator, dtype=torch.float64) for _ in range(2))
        chosen = (drawn < self.share) | (drawn == drawn.amin(1, keepdim=True))
        other = torch.randint(self.vocabulary - 1, windows.shape, generator=generator)
        # any token but the mask
        other = other + (other >= self.mask)
        inputs = torch.where(chosen & (kind < self.hidden), self.mask, windows)
        between = (kind >= self.hidden) & (kind < self.hidden + self.swapped)
        inputs = torch.where(chosen & between, other, inputs)
        return Batch(inputs, windows.masked_fill(~chosen, SILENT))
