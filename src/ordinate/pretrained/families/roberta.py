"""RoBERTa."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.models.text_head import TextHead
from ordinate.pretrained._family import TensorRule, Weight, linear_rules
from ordinate.pretrained.bert_like import BertLike

PADDING = 1


@dataclass(frozen=True)
class SkippedRows(TensorRule):
    """A position table whose first rows are unused.

    Args:
        offset: how many rows.
    """

    offset: int

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][self.offset :]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [torch.cat([tensor.new_zeros(self.offset, tensor.shape[1]), tensor])]


class Roberta(BertLike):
    """RoBERTa: BERT, trained longer; positions count from the padding token + 1, so that the first two rows of its
    position table are usually unused.

    Source: Liu et al. 2019, https://arxiv.org/abs/1907.11692.
    """

    model_type = "roberta"
    prefix = "roberta."
    masked_lm_class = "RobertaForMaskedLM"
    causal_lm_class = "RobertaForCausalLM"
    base_class = "RobertaModel"
    masked_transform = "lm_head.dense"
    masked_norm = "lm_head.layer_norm"
    masked_logits = "lm_head"
    defaults: ClassVar[Mapping[str, Any]] = {**BertLike.defaults, "vocab_size": 50_265, "pad_token_id": PADDING}
    # that of the head is not an option
    head_activation = "gelu"

    def padding(self, config: Mapping[str, Any]) -> int | None:
        token = config["pad_token_id"]
        need(
            isinstance(token, int) and token >= 0,
            "a roberta counts positions from its padding token",
            f"got pad_token_id={token!r}",
            "set it in config.json; 1 is usual",
        )
        return None if token == PADDING else token

    def position_offset(self, padding: int | None) -> int:
        return (PADDING if padding is None else padding) + 1

    def position_rule(self, padding: int | None) -> TensorRule:
        table = f"{self.prefix}embeddings.position_embeddings.weight"
        return SkippedRows("schemes.0.table", (table,), self.position_offset(padding))

    def classifier_rules(self, head: TextHead) -> Sequence[TensorRule]:
        if head != "classes":
            return super().classifier_rules(head)
        return [
            *linear_rules("pooler", "classifier.dense", bias=True),
            *linear_rules("classes", "classifier.out_proj", bias=True),
        ]
