"""Qwen2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import WINDOW_DEFAULTS, layer_types, layer_windows


class Qwen2(LlamaLike):
    """Qwen2: Llama with a bias on the QKV projection, and sliding windows in some layers.

    Source: Yang et al. 2024, https://arxiv.org/abs/2407.10671.
    """

    model_type = "qwen2"
    base_class = "Qwen2Model"
    causal_lm_class = "Qwen2ForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        **WINDOW_DEFAULTS,
        "vocab_size": 151_936,
        "intermediate_size": 22_016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
    }
    bias = True

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return layer_types(shape)
