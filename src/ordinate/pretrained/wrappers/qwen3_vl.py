"""Qwen3-VL."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.qwen_vl_like import Qwen3VlLike


class Qwen3Vl(Qwen3VlLike):
    """Qwen3-VL of texts, images and videos, around a qwen3.

    Source: Bai et al. 2025, https://arxiv.org/abs/2511.21631.
    """

    model_type = "qwen3_vl"
    causal_lm_class = "Qwen3VLForConditionalGeneration"
    base_class = "Qwen3VLModel"
    text_type = "qwen3_vl_text"
    family = "qwen3"
    text_settings: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e5,
        "attention_bias": False,
    }
