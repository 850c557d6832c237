"""Masked language modelling."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordinate.core.checks import need
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.data.task import Task


class Masked(Task):
    """Masked language modelling on windows of a text.

    Each token is selected independently with probability `mlm_probability`, at least one in each window. Most
    selected tokens are replaced by the mask token, some by a random token, and some are kept, so that the model
    cannot rely on any visible token being correct.

    Args:
        tokens: the text, in memory or memory-mapped.
        vocabulary: vocabulary size, the mask token included.
        length: window length [tokens].
        mask: id of the mask token; None: the last of the vocabulary.
        mlm_probability: probability of selecting a token.
        mask_replace_prob: share of the selected tokens replaced by the mask token.
        random_replace_prob: share of the selected tokens replaced by a random token other than the mask; the rest is
            kept.
    Raises:
        ValueError: a text shorter than a window, a mask outside the vocabulary, or invalid shares.
    Source: Devlin et al. 2019, BERT, section 3.1 and appendix C.2, https://arxiv.org/abs/1810.04805.
    Departs: tokens are selected independently, not a fixed number in each window; at least one.
    """

    model_kind = "encoder"

    def __init__(
        self,
        *,
        tokens: NDArray[np.integer[Any]],
        vocabulary: int,
        length: int,
        mask: int | None = None,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
    ) -> None:
        need(
            len(tokens) >= length,
            f"the text must have at least {length} tokens",
            f"it has {len(tokens)}",
            "give more text, or a smaller --length",
        )
        self.mask = vocabulary - 1 if mask is None else mask
        need(
            0 <= self.mask < vocabulary and vocabulary > 1,
            f"the mask token must be one of {vocabulary} tokens, and not the only one",
            f"got mask={self.mask}",
            "include it in the vocabulary",
        )
        need(
            0 < mlm_probability <= 1,
            "mlm_probability must be above 0 and at most 1",
            f"got {mlm_probability}",
            "0.15 is usual",
        )
        need(
            min(mask_replace_prob, random_replace_prob) >= 0 and mask_replace_prob + random_replace_prob <= 1,
            "mask_replace_prob and random_replace_prob must be shares that sum to at most 1",
            f"got {mask_replace_prob} and {random_replace_prob}",
            "0.8 and 0.1 are usual",
        )
        self.tokens, self._length, self._vocabulary = tokens, length, vocabulary
        self.mlm_probability = mlm_probability
        self.mask_replace_prob, self.random_replace_prob = mask_replace_prob, random_replace_prob

    @property
    def vocabulary(self) -> int:
        """Vocabulary size, the mask token included."""
        return self._vocabulary

    @property
    def length(self) -> int:
        """Window length [tokens]."""
        return self._length

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw windows with uniformly random start."""
        starts = torch.randint(len(self.tokens) - self.length + 1, (count,), generator=generator).tolist()
        rows = np.stack([self.tokens[start : start + self.length] for start in starts]).astype(np.int64)
        return self.hide(torch.from_numpy(rows), generator)

    def hide(self, windows: torch.Tensor, generator: torch.Generator) -> Batch:
        """Mask some tokens of these windows (b, n)."""
        drawn, kind = (torch.rand(windows.shape, generator=generator, dtype=torch.float64) for _ in range(2))
        # the smallest draw of each window is always selected, so that no window is without targets
        chosen = (drawn < self.mlm_probability) | (drawn == drawn.amin(1, keepdim=True))
        other = torch.randint(self.vocabulary - 1, windows.shape, generator=generator)
        # skip the id of the mask token
        other = other + (other >= self.mask)
        inputs = torch.where(chosen & (kind < self.mask_replace_prob), self.mask, windows)
        between = (kind >= self.mask_replace_prob) & (kind < self.mask_replace_prob + self.random_replace_prob)
        inputs = torch.where(chosen & between, other, inputs)
        return Batch(inputs, windows.masked_fill(~chosen, IGNORE_INDEX))
