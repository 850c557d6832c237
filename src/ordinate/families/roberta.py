"""RoBERTa."""

from collections.abc import Sequence

import torch

from ordinate.checkpoints.bert_like import BertLike
from ordinate.family import Rule, Weight, linear
from ordinate.models.shape import Shape

# its padding token is 1, and positions count from behind it
FIRST = 2


class Later(Rule):
    """A table whose first rows stand for no position."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """The rows that do."""
        return tensors[0][FIRST:]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """They, behind rows of 0."""
        return [torch.cat([tensor.new_zeros(FIRST, tensor.shape[1]), tensor])]


class Roberta(BertLike):
    """BERT, trained longer; its table of positions begins with two rows that no token takes.

    Source: Liu et al. 2019, https://arxiv.org/abs/1907.11692.
    """

    model_type = "roberta"
    prefix = "roberta."
    masked = "RobertaForMaskedLM"
    plain = "RobertaModel"
    first = FIRST

    def positions(self) -> Rule:
        """Without the rows that no token takes."""
        return Later("schemes.0.table", (f"{self.prefix}embeddings.position_embeddings.weight",))

    def head(self) -> Sequence[Rule]:
        """How the tensors of the masked head are called there and here."""
        return [
            *linear("masked.transform", "lm_head.dense", bias=True),
            *linear("masked.norm", "lm_head.layer_norm", bias=True),
            Rule("masked.bias", ("lm_head.bias",)),
        ]
