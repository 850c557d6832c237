"""XLM-RoBERTa-XL."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.roberta_like import RobertaLike


class XlmRobertaXl(RobertaLike):
    """XLM-RoBERTa-XL and XXL: RoBERTa with pre-norm, whose embeddings are not normalised, for 100 languages.

    Source: Goyal et al. 2021, Larger-Scale Transformers for Multilingual Masked Language Modeling,
    https://arxiv.org/abs/2105.00572.
    """

    model_type = "xlm-roberta-xl"
    masked_lm_class = "XLMRobertaXLForMaskedLM"
    causal_lm_class = "XLMRobertaXLForCausalLM"
    base_class = "XLMRobertaXLModel"
    norm_position = "pre"
    embedding_norm = False
    final_norm = "encoder.LayerNorm"
    parts: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        **RobertaLike.parts,
        "mixer_norm": "attention.self_attn_layer_norm",
        "feedforward_norm": "LayerNorm",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        **RobertaLike.defaults,
        "vocab_size": 250_880,
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 10_240,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    }
