"""RoBERTa."""

from collections.abc import Sequence

import torch

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight, linear_rules
from ordinate.pretrained.bert_like import BertLike

# position ids start at padding_idx + 1 = 2
POSITION_OFFSET = 2


class SkippedRows(TensorRule):
    """A position table whose first rows are unused."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][POSITION_OFFSET:]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [torch.cat([tensor.new_zeros(POSITION_OFFSET, tensor.shape[1]), tensor])]


class Roberta(BertLike):
    """RoBERTa: BERT, trained longer; the first two rows of its position table are unused.

    Source: Liu et al. 2019, https://arxiv.org/abs/1907.11692.
    """

    model_type = "roberta"
    prefix = "roberta."
    masked_lm_class = "RobertaForMaskedLM"
    base_class = "RobertaModel"
    position_offset = POSITION_OFFSET

    def position_rule(self) -> TensorRule:
        return SkippedRows("schemes.0.table", (f"{self.prefix}embeddings.position_embeddings.weight",))

    def masked_lm_rules(self) -> Sequence[TensorRule]:
        return [
            *linear_rules("masked.transform", "lm_head.dense", bias=True),
            *linear_rules("masked.norm", "lm_head.layer_norm", bias=True),
            TensorRule("masked.bias", ("lm_head.bias",)),
        ]
