"""A language and a copy of it that shares no symbol: encoders of both, with or without positions of their own."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Ids, Tokens
from ordinate.data.batch import Batch
from ordinate.data.tasks.masked import Masked
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.replications.prose import heldout_texts, train_bytes
from ordinate.replications.trained import Arm

LETTERS = b"abcdefghijklmnopqrstuvwxyz"
SPACE, OTHER = len(LETTERS), len(LETTERS) + 1
# the second language has as many; the last of the vocabulary masks, in both
SYMBOLS = len(LETTERS) + 2
MASK, VOCABULARY = 2 * SYMBOLS, 2 * SYMBOLS + 1
# of a text; bytes of the prose that one language has before the other has as many
TOKENS, PIECE = 8, 4096

Offsets = Literal["none", "by language", "by chance"]
"""Which texts are at positions TOKENS to 2 TOKENS - 1, the others at 0 to TOKENS - 1: none, those of the second
language, or half of those in training, of either language."""


class Bilingual(Encoder):
    """An encoder of both languages that finds positions and token types from the language of a text.

        p(i) = i + TOKENS offset(text)

    The language of a text is that of most of its symbols: a few are replaced by random ones of either. With token
    types, that of a text is its language.

    Args:
        shape: hyperparameters; `max_length` is twice the length of a text.
        offsets: which texts are at the later positions.
    """

    def __init__(self, shape: EncoderShape, offsets: Offsets) -> None:
        super().__init__(shape)
        self.offsets = offsets

    def forward(self, ids: Ids, where: Geometry | None = None, token_types: Ids | None = None) -> Tokens:
        """Compute the final hidden state of each token, as `Encoder.forward`; a geometry given is used as it is."""
        second = is_second(ids)
        if self.kinds is not None and token_types is None:
            token_types = second.long()[:, None].expand_as(ids)
        if where is None:
            pos = torch.arange(ids.shape[1]) + TOKENS * self._later(second).long()[:, None]
            where = Geometry.from_positions(pos[..., None], causal=False)
        return super().forward(ids, where, token_types)

    def _later(self, second: Bool[Tensor, "b"]) -> Bool[Tensor, "b"]:
        """Which texts are at the later positions; with offsets by chance, none in evaluation."""
        drawn = self.training and self.offsets == "by chance"
        chosen = torch.rand(len(second)) < 0.5 if drawn else torch.zeros_like(second)
        return second if self.offsets == "by language" else chosen


@dataclass(frozen=True)
class BilingualArm(Arm):
    """Encoders of both languages.

    Args:
        offsets: which texts are at the later positions.
    """

    offsets: Offsets = "none"

    def build(self) -> Bilingual:
        """Construct the model."""
        assert isinstance(self.shape, EncoderShape)
        return Bilingual(self.shape, self.offsets)


def is_second(ids: Ids) -> Bool[Tensor, "b"]:
    """Return which texts are of the second language: those with more of its symbols than of the first."""
    return ((ids >= SYMBOLS) & (ids < MASK)).sum(1) > (ids < SYMBOLS).sum(1)


def translated(ids: Ids) -> Ids:
    """Return texts of the first language in the second."""
    return ids + SYMBOLS


class TwoLanguages(Masked):
    """Masked symbols of texts that begin with a word, in two languages that read different parts of the prose."""

    def __init__(self) -> None:
        super().__init__(tokens=training_text(), vocabulary=VOCABULARY, length=TOKENS)
        starts = word_starts(torch.from_numpy(self.tokens % SYMBOLS)).nonzero()[:, 0]
        starts = starts[starts <= len(self.tokens) - TOKENS]
        last = torch.from_numpy(self.tokens)[starts + TOKENS - 1]
        # a text is in one language
        self.starts = starts[(torch.from_numpy(self.tokens)[starts] < SYMBOLS) == (last < SYMBOLS)]

    def sample(self, generator: torch.Generator, count: int) -> Batch:
        """Draw texts with uniformly random start."""
        starts = self.starts[torch.randint(len(self.starts), (count,), generator=generator)]
        return self.hide(torch.from_numpy(self.tokens)[starts[:, None] + torch.arange(TOKENS)], generator)


def symbols(text: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the symbols of bytes in the first language: letters without case, the space, and one for all others."""
    table = np.full(256, OTHER, np.int64)
    table[list(LETTERS)] = table[list(LETTERS.upper())] = np.arange(len(LETTERS))
    table[ord(" ")] = SPACE
    return table[text]


def word_starts(rows: Int[Tensor, "*rows n"]) -> Bool[Tensor, "*rows n"]:
    """Return where a letter comes after a space, in the first language."""
    found = torch.zeros_like(rows, dtype=torch.bool)
    found[..., 1:] = (rows[..., :-1] == SPACE) & (rows[..., 1:] < SPACE)
    return found


def training_text() -> NDArray[np.int64]:
    """Return the text of both languages, the first half in the first one: no piece of the prose is in both."""
    text = symbols(train_bytes())
    pieces = text[: len(text) // (2 * PIECE) * 2 * PIECE].reshape(-1, 2, PIECE)
    return np.concatenate([pieces[:, 0].ravel(), pieces[:, 1].ravel() + SYMBOLS])


def heldout(texts: int) -> Ids:
    """Return different held-out texts in the first language, each the first of its window that begins with a word.

    Args:
        texts: number of windows.
    """
    rows = torch.from_numpy(symbols(heldout_texts(texts, 4 * TOKENS).numpy().astype(np.uint8)))
    starts = word_starts(rows[:, : 3 * TOKENS])
    rows, first = rows[starts.any(1)], starts[starts.any(1)].long().argmax(1)
    found = rows.gather(1, first[:, None] + torch.arange(TOKENS)).unique(dim=0)
    return found[torch.randperm(len(found), generator=torch.Generator().manual_seed(0))]
