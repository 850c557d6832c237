"""Base class of encoders with the tensor names of BERT, trained on masked tokens and the next sentence."""

from collections.abc import Collection, Mapping
from typing import Any

from ordinate.core.checks import need
from ordinate.pretrained.bert_like import BertLike


class NextSentenceLike(BertLike):
    """BERT-like encoders whose head for the next sentence is ignored beside another one, and refused alone.

    Must: `model_type`, `masked_lm_class`, `causal_lm_class` and `base_class`.
    """

    prefix = "bert."
    masked_transform = "cls.predictions.transform.dense"
    masked_norm = "cls.predictions.transform.LayerNorm"
    masked_logits = "cls.predictions"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head; one for the next sentence only is refused (beside another head it is ignored)."""
        named = (config["architectures"] or ("",))[0]
        need(
            named != f"{self.base_class.removesuffix('Model')}ForNextSentencePrediction",
            "the head for the next sentence is not supported",
            f"config.json names a {named}",
            f"load that in transformers as a {self.base_class}, and save it again, for its hidden states",
        )
        return super().complete_config(config, names)
