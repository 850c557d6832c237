"""BERT."""

from collections.abc import Collection, Mapping
from typing import Any

from ordinate.core.checks import need
from ordinate.pretrained.bert_like import BertLike

NEXT_SENTENCE = "BertForNextSentencePrediction"


class Bert(BertLike):
    """BERT, trained by masked language modelling, and models with its architecture (such as MiniLM).

    Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
    """

    model_type = "bert"
    prefix = "bert."
    masked_lm_class = "BertForMaskedLM"
    causal_lm_class = "BertLMHeadModel"
    base_class = "BertModel"
    masked_transform = "cls.predictions.transform.dense"
    masked_norm = "cls.predictions.transform.LayerNorm"
    masked_logits = "cls.predictions"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head; one for the next sentence only is refused (beside another head it is ignored)."""
        named = (config["architectures"] or ("",))[0]
        need(
            named != NEXT_SENTENCE,
            "the head for the next sentence is not supported",
            f"config.json names a {named}",
            f"load that in transformers as a {self.base_class}, and save it again, for its hidden states",
        )
        return super().complete_config(config, names)
