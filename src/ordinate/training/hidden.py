"""What a model that reads from both sides knows of hidden tokens of held-out text."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ordinate.batch import SILENT, Batch
from ordinate.training.evaluate import Text


@dataclass(frozen=True, eq=False)
class Hidden:
    """Held-out pieces, some of whose tokens are hidden.

    Args:
        text: the pieces.
        where: which of their tokens are hidden.
        mask: the token that stands in their place.
    """

    text: Text
    where: Bool[Tensor, "pieces length"]
    mask: int

    @property
    def tokens(self) -> Int[Tensor, "pieces length"]:
        """The tokens of the pieces, none hidden."""
        return self.text.tokens[:, : self.text.length]

    def cut(self, length: int) -> "Hidden":
        """The same text in shorter pieces, so that the same tokens are to be said from less around them."""
        text = self.text.cut(length)
        parts = self.text.length // length
        return Hidden(text, self.where[:, : parts * length].reshape(-1, length), self.mask)

    def first(self, count: int) -> "Hidden":
        """The first pieces only."""
        return Hidden(self.text.first(count), self.where[:count], self.mask)

    def batch(self, order: Int[Tensor, "pieces length"] | None = None) -> Batch:
        """What a model is asked: the hidden tokens.

        Args:
            order: the place that each token comes from; None: its own.
        """
        tokens = self.tokens if order is None else self.tokens.gather(1, order)
        inputs = tokens.masked_fill(self.where, self.mask)
        return Batch(inputs, self.tokens.masked_fill(~self.where, SILENT))

    def shuffle(self, window: int, generator: torch.Generator) -> Int[Tensor, "pieces length"]:
        """The place that each token comes from if those that are seen change places inside windows of so many.

        Hidden tokens stay, so that the same are to be said.
        """
        place = torch.arange(self.text.length).expand_as(self.where)
        noise = torch.rand(self.where.shape, generator=generator)
        # hidden places last in both orders; of the others, those of one window stay in it
        before = place.masked_fill(self.where, self.text.length).argsort(dim=1, stable=True)
        keys = (place // window + noise).masked_fill(self.where, self.text.length)
        return place.scatter(1, before, keys.argsort(dim=1, stable=True))


def hide(text: Text, share: float, mask: int, generator: torch.Generator) -> Hidden:
    """Hide this share of the tokens of each piece, at least one, each as likely.

    Args:
        text: the pieces.
        share: of the tokens, in (0, 1).
        mask: the token that stands in their place.
        generator: draws them.
    """
    pieces, length = text.tokens.shape[0], text.length
    rank = torch.rand(pieces, length, generator=generator).argsort(1).argsort(1)
    return Hidden(text, rank < max(1, round(share * length)), mask)
