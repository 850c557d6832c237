"""Evaluation inputs for masked language models: held-out text with masked tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.evaluation.losses import EvaluationText


@dataclass(frozen=True, eq=False)
class MaskedText:
    """Held-out sequences with some tokens masked.

    Args:
        text: the sequences.
        masked: which tokens are masked.
        mask: id of the mask token.
    """

    text: EvaluationText
    masked: Bool[Tensor, "pieces length"]
    mask: int

    @property
    def tokens(self) -> Int[Tensor, "pieces length"]:
        """The tokens before masking, without the target after the last one."""
        return self.text.tokens[:, : self.text.length]

    def split_to(self, length: int) -> "MaskedText":
        """Split into shorter sequences: the same masked tokens are predicted from less context."""
        text = self.text.split_to(length)
        parts = self.text.length // length
        return MaskedText(text, self.masked[:, : parts * length].reshape(-1, length), self.mask)

    def head(self, count: int) -> "MaskedText":
        """Return the first `count` sequences."""
        return MaskedText(self.text.head(count), self.masked[:count], self.mask)

    def batch(self, order: Int[Tensor, "pieces length"] | None = None) -> Batch:
        """Return the model inputs, with the masked tokens as targets.

        Args:
            order: source position of each token (a permutation); None: identity.
        """
        tokens = self.tokens if order is None else self.tokens.gather(1, order)
        inputs = tokens.masked_fill(self.masked, self.mask)
        return Batch(inputs, self.tokens.masked_fill(~self.masked, IGNORE_INDEX))

    def shuffle(self, window: int, generator: torch.Generator) -> Int[Tensor, "pieces length"]:
        """Return a permutation of positions that shuffles the unmasked tokens within windows of this size.

        Masked tokens keep their positions, so that the targets stay the same.
        """
        place = torch.arange(self.text.length).expand_as(self.masked)
        noise = torch.rand(self.masked.shape, generator=generator)
        # both argsorts list masked positions last; unmasked positions are permuted within their window only
        before = place.masked_fill(self.masked, self.text.length).argsort(dim=1, stable=True)
        keys = (place // window + noise).masked_fill(self.masked, self.text.length)
        return place.scatter(1, before, keys.argsort(dim=1, stable=True))


def mask_tokens(text: EvaluationText, share: float, mask: int, generator: torch.Generator) -> MaskedText:
    """Mask a fraction of the tokens of each sequence, at least one, uniformly at random.

    Args:
        text: the sequences.
        share: fraction of tokens to mask, in (0, 1).
        mask: id of the mask token.
        generator: source of randomness.
    """
    pieces, length = text.tokens.shape[0], text.length
    return MaskedText(text, choose_masked(pieces, length, share, generator), mask)


def choose_masked(
    pieces: int, length: int, share: float, generator: torch.Generator, free: Bool[Tensor, "length"] | None = None
) -> Bool[Tensor, "pieces length"]:
    """Choose a fraction of the tokens of each sequence, at least one, uniformly at random.

    Args:
        pieces: number of sequences.
        length: tokens of a sequence.
        share: fraction of tokens to choose, in (0, 1).
        generator: source of randomness.
        free: which positions may be chosen; None: all.
    """
    noise = torch.rand(pieces, length, generator=generator)
    if free is not None:
        noise = noise.masked_fill(~free, 2.0)
        length = int(free.sum())
    return noise.argsort(1).argsort(1) < max(1, round(share * length))
