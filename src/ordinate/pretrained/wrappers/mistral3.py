"""Mistral Small 3.1, Ministral 3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained._wrapper import Wrapper


class Mistral3(Wrapper):
    """Mistral Small 3.1 and Ministral 3 of texts and images, around a mistral or a ministral3.

    Source: Mistral AI 2025, https://mistral.ai/news/mistral-small-3-1.
    """

    model_type = "mistral3"
    causal_lm_class = "Mistral3ForConditionalGeneration"
    base_class = "Mistral3Model"
    text_type = "mistral"
    text_defaults: ClassVar[Mapping[str, Any]] = {
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 32_768,
        "max_position_embeddings": 131_072,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e9,
        "sliding_window": None,
        "vocab_size": 131_072,
    }
