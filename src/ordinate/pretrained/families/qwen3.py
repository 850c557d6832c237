"""Qwen3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import WINDOW_DEFAULTS, layer_types, layer_windows


class Qwen3(LlamaLike):
    """Qwen3: Llama with QK-norm in each head, and sliding windows in some layers.

    Source: Yang et al. 2025, https://arxiv.org/abs/2505.09388.
    """

    model_type = "qwen3"
    base_class = "Qwen3Model"
    causal_lm_class = "Qwen3ForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        **WINDOW_DEFAULTS,
        "vocab_size": 151_936,
        "intermediate_size": 22_016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "head_dim": 128,
        "attention_bias": False,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return layer_types(shape)
