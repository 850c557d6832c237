"""BERT."""

from collections.abc import Sequence

from ordinate.checkpoints.bert_like import BertLike
from ordinate.family import Rule, linear


class Bert(BertLike):
    """The first encoder that learned from masked tokens, and the many built like it (MiniLM is one).

    Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
    """

    model_type = "bert"
    prefix = "bert."
    masked = "BertForMaskedLM"
    plain = "BertModel"

    def head(self) -> Sequence[Rule]:
        """How the tensors of the masked head are called there and here."""
        there = "cls.predictions"
        return [
            *linear("masked.transform", f"{there}.transform.dense", bias=True),
            *linear("masked.norm", f"{there}.transform.LayerNorm", bias=True),
            Rule("masked.bias", (f"{there}.bias",)),
        ]
