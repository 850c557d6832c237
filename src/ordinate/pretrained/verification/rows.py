"""Texts arranged for one call: one at a time, padded on the left or right, or packed into one row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from ordinate.core.geometry import Geometry

Layout = Literal["alone", "left", "right", "packed"]
# any length: several lines have different ones
Line = Int[Tensor, "_"]


@dataclass(frozen=True, eq=False)
class Text:
    """A text that both models read.

    Args:
        ids: token ids; of an encoder-decoder those of the target.
        token_types: token type ids; None: the model has none.
        source: token ids of the source of an encoder-decoder.
    """

    ids: Line
    token_types: Line | None = None
    source: Line | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Sequences in one tensor.

    Args:
        values: the sequences, with padding.
        real: True at tokens, False at padding.
        lengths: lengths of sequences that are packed into one row; None: each has a row of its own.
    """

    values: Int[Tensor, "b n"]
    real: Bool[Tensor, "b n"]
    lengths: tuple[int, ...] | None = None

    @classmethod
    def of(cls, lines: Sequence[Line], layout: Layout, fill: int = 0) -> "Rows":
        """Arrange sequences; padding has the id `fill`."""
        if layout == "packed":
            values = torch.cat(list(lines))[None]
            return cls(values, torch.ones_like(values, dtype=torch.bool), tuple(len(line) for line in lines))
        width = max(len(line) for line in lines)
        values = torch.full((len(lines), width), fill)
        real = torch.zeros_like(values, dtype=torch.bool)
        for row, line in enumerate(lines):
            place = slice(width - len(line), None) if layout == "left" else slice(len(line))
            values[row, place], real[row, place] = line, True
        return cls(values, real)

    @property
    def mask(self) -> Int[Tensor, "b n"]:
        """The `attention_mask` of transformers."""
        return self.real.long()

    @property
    def begins_with_tokens(self) -> bool:
        """Whether the first column, which poolers read, is the first token of each sequence."""
        return self.lengths is None and bool(self.real[:, 0].all())

    @property
    def positions(self) -> Int[Tensor, "b n"]:
        """Positions that count tokens without padding."""
        return (self.mask.cumsum(1) - 1).clamp(min=0)

    def geometry(self, *, causal: bool) -> Geometry | None:
        """Return the geometry; None: one whole sequence in each row."""
        if self.lengths is not None:
            return Geometry.packed(self.lengths, causal=causal)
        return None if bool(self.real.all()) else Geometry.padded(self.real, causal=causal)

    def tokens(self, x: Shaped[Tensor, "b n *rest"]) -> Shaped[Tensor, "tokens *rest"]:
        """Return what belongs to tokens, one sequence after another."""
        return x[self.real]


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts and their layout.

    Args:
        texts: the texts.
        layout: how they are arranged.
        fill: token id of padding.
    """

    texts: tuple[Text, ...]
    layout: Layout
    fill: int = 0

    def calls(self) -> "list[Texts]":
        """Return the calls of a model that they need: one for each text if they are read alone."""
        alone = self.layout == "alone"
        return [Texts((text,), "right", self.fill) for text in self.texts] if alone else [self]

    @property
    def ids(self) -> Rows:
        """Token ids."""
        return Rows.of([text.ids for text in self.texts], self.layout, self.fill)

    @property
    def token_types(self) -> Int[Tensor, "b n"] | None:
        """Token type ids; None: the model has none."""
        lines = [text.token_types for text in self.texts if text.token_types is not None]
        return Rows.of(lines, self.layout).values if lines else None

    @property
    def source(self) -> Rows:
        """Token ids of the sources."""
        return Rows.of([text.source for text in self.texts if text.source is not None], self.layout, self.fill)
