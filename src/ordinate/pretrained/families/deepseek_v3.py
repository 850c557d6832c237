"""DeepSeek-V3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    FIRST,
    GROUPS,
    INNER,
    PREDICTORS,
    PREDICTORS_ALIAS,
    PUBLISHED_COUNT,
    SHARED,
    DeepseekMoeLike,
)
from ordinate.pretrained.latent_like import CONTENT, LAYOUT, QUERY_RANK, RANK, ROTATED, VALUE
from ordinate.pretrained.latent_moe_like import LatentMoeLike
from ordinate.pretrained.llama_like import LlamaLike


class DeepseekV3(LatentMoeLike):
    """DeepSeek-V3 and R1, and models like them: latent attention, and experts chosen in groups.

    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report, https://arxiv.org/abs/2412.19437.
    """

    model_type = "deepseek_v3"
    base_class = "DeepseekV3Model"
    causal_lm_class = "DeepseekV3ForCausalLM"
    # transformers has no head for answers
    heads = ("classes", "token_classes")
    predictor = 61
    head_dim_counts = True
    aliases: ClassVar[Mapping[str, str]] = {**DeepseekMoeLike.aliases, PREDICTORS_ALIAS: PREDICTORS}
    fallback_aliases = frozenset({PREDICTORS_ALIAS})
    null_is_false = frozenset({"norm_topk_prob"})
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 129_280,
        "hidden_size": 7168,
        "intermediate_size": 18_432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "max_position_embeddings": 4096,
        "attention_bias": False,
        RANK: 512,
        QUERY_RANK: 1536,
        CONTENT: 128,
        ROTATED: 64,
        VALUE: 128,
        LAYOUT: True,
        INNER: 2048,
        CHOSEN: 8,
        SHARED: 1,
        PUBLISHED_COUNT: 256,
        "routed_scaling_factor": 2.5,
        GROUPS: 8,
        CHOSEN_GROUPS: 4,
        FIRST: 3,
        "norm_topk_prob": True,
        PREDICTORS: 1,
    }
