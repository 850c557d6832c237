"""Base class of RoBERTa-like encoders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch

from ordinate.core.checks import need
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight
from ordinate.pretrained.bert_like import BertLike
from ordinate.pretrained.counted_rows import CountedRows

PADDING = 1


@dataclass(frozen=True)
class PaddingRow(CountedRows):
    """The row of a position table for the padding token; `CountedRows` has the others."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][self.padding : self.padding + 1]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [torch.nn.functional.pad(tensor, (0, 0, self.padding, shape.max_length))]


class RobertaLike(BertLike):
    """RoBERTa-like encoders: positions count from the padding token + 1, and leave out padding tokens.

    The row of the position table for padding tokens is that of their number. The first row is usually unused.

    Must: `model_type`, `masked_lm_class`, `causal_lm_class` and `base_class`.
    May: `defaults`.
    """

    prefix = "roberta."
    masked_transform = "lm_head.dense"
    masked_norm = "lm_head.layer_norm"
    masked_logits = "lm_head"
    defaults: ClassVar[Mapping[str, Any]] = {**BertLike.defaults, "pad_token_id": PADDING}
    text_classifier = ("classifier.dense", "classifier.out_proj")
    # that of the head is not an option
    head_activation = "gelu"

    position_table: ClassVar[str] = "schemes.0.table"
    """Name of the position table here."""

    def padding(self, config: Mapping[str, Any]) -> int | None:
        token = config["pad_token_id"]
        need(
            isinstance(token, int) and token >= 0,
            f"a {self.model_type} counts positions from its padding token",
            f"got pad_token_id={token!r}",
            "set it in config.json; 1 is usual",
        )
        rows = config["max_position_embeddings"]
        must = "max_position_embeddings must be above pad_token_id + 1, from which positions count"
        need(rows > token + 1, must, f"got {rows} and {token}", "correct both in config.json")
        return token

    def position_rules(self, table: str, padding: int | None) -> Sequence[TensorRule]:
        token = cast(int, padding)
        return [
            CountedRows(self.position_table, (table,), token),
            PaddingRow("padding_position.weight", (table,), token),
        ]

    def embeddings_config(self, shape: EncoderShape) -> dict[str, Any]:
        must, remedy = f"a {self.model_type} has a padding token", f"give padding={PADDING}, which is usual"
        need(shape.padding is not None, must, f"got padding={shape.padding}", remedy)
        return super().embeddings_config(shape)
