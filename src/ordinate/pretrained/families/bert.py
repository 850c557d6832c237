"""BERT."""

from collections.abc import Sequence

from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.bert_like import BertLike


class Bert(BertLike):
    """BERT, trained by masked language modelling, and models with its architecture (such as MiniLM).

    Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
    """

    model_type = "bert"
    prefix = "bert."
    masked_lm_class = "BertForMaskedLM"
    base_class = "BertModel"

    def masked_lm_rules(self) -> Sequence[TensorRule]:
        there = "cls.predictions"
        return [
            *linear_rules("masked.transform", f"{there}.transform.dense", bias=True),
            *linear_rules("masked.norm", f"{there}.transform.LayerNorm", bias=True),
            TensorRule("masked.bias", (f"{there}.bias",)),
        ]
