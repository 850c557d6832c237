"""Base class of decoders whose output head has a bias."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.decoder_like import DecoderLike

HEAD = "lm_head"


class BiasedHead(DecoderLike):
    """Decoders whose head has a bias, which a tied one has not here: the token table is then read as the head too.

    Must: besides those of `DecoderLike`, `table`; a `shape` without ties, and `rules` with `head_rules`, for models
        with that bias.
    """

    table: ClassVar[str]
    """Name of the token table in checkpoints."""

    def head_rules(self) -> list[TensorRule]:
        """Return the tensor mappings of the head."""
        head, bias = linear_rules("head", HEAD, bias=True)
        return [TensorRule(head.ours, (self.table,)) if self.settings.get("tie_word_embeddings") else head, bias]

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        if "head" not in shape.bias:
            return super().refined(shape, tensors)
        if self.differ(tensors, self.table, f"{HEAD}.weight"):
            # not tied, whatever config.json says
            self.settings = {**self.settings, "tie_word_embeddings": False}
        return shape

    def copies(self, shape: Shape) -> tuple[str, ...]:
        if "head" not in shape.bias:
            return super().copies(shape)
        return (f"{HEAD}.weight",) if self.settings.get("tie_word_embeddings") else ()
