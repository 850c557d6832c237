"""Qwen2."""

from collections.abc import Mapping
from typing import Any

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike, layer_types, layer_windows


class Qwen2(LlamaLike):
    """Qwen2: Llama with a bias on the QKV projection, and sliding windows in some layers.

    Source: Yang et al. 2024, https://arxiv.org/abs/2407.10671.
    """

    model_type = "qwen2"
    bias = True

    def architecture(self, shape: Shape) -> str:
        return "Qwen2ForCausalLM"

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return layer_types(shape)
