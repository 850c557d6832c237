"""RoBERTa with pre-norm layers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.roberta_like import RobertaLike


class RobertaPrelayernorm(RobertaLike):
    """RoBERTa with norms before attention and feed-forward, and one after the last layer (efficient_mlm).

    Source: Wettig et al. 2022, Should You Mask 15% in Masked Language Modeling?, https://arxiv.org/abs/2202.08005.
    """

    model_type = "roberta-prelayernorm"
    prefix = "roberta_prelayernorm."
    masked_lm_class = "RobertaPreLayerNormForMaskedLM"
    causal_lm_class = "RobertaPreLayerNormForCausalLM"
    base_class = "RobertaPreLayerNormModel"
    norm_position = "pre"
    final_norm = "LayerNorm"
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        **RobertaLike.parts,
        "mixer_norm": "attention.LayerNorm",
        "feedforward_norm": "intermediate.LayerNorm",
    }
    defaults: ClassVar[Mapping[str, Any]] = {**RobertaLike.defaults, "vocab_size": 50_265}
