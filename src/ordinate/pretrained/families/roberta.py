"""RoBERTa."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.roberta_like import RobertaLike


class Roberta(RobertaLike):
    """RoBERTa: BERT, trained longer, whose positions count from the padding token and leave it out.

    Source: Liu et al. 2019, https://arxiv.org/abs/1907.11692.
    """

    model_type = "roberta"
    masked_lm_class = "RobertaForMaskedLM"
    causal_lm_class = "RobertaForCausalLM"
    base_class = "RobertaModel"
    defaults: ClassVar[Mapping[str, Any]] = {**RobertaLike.defaults, "vocab_size": 50_265}
