"""FlexOlmo."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.llama_like import OUT_NORMS, LlamaLike
from ordinate.pretrained.moe_like import CHOSEN
from ordinate.pretrained.olmo_moe_like import NORMALISE, PUBLISHED_COUNT, OlmoMoeLike


class FlexOlmo(OlmoMoeLike):
    """FlexOlmo: OLMo 2 with a mixture of experts in every layer.

    Source: Shi et al. 2025, FlexOlmo: Open Language Models for Flexible Data Use, https://arxiv.org/abs/2507.07024.
    """

    model_type = "flex_olmo"
    base_class = "FlexOlmoModel"
    causal_lm_class = "FlexOlmoForCausalLM"
    norm_position = "res_post"
    norms = OUT_NORMS
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 100_352,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 4096,
        "rope_theta": 5e5,
        "pad_token_id": 100_277,
        "attention_bias": False,
        PUBLISHED_COUNT: 7,
        CHOSEN: 5,
        NORMALISE: False,
    }
