"""Qwen3."""

from collections.abc import Mapping
from typing import Any

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike, layer_types, layer_windows


class Qwen3(LlamaLike):
    """Qwen3: Llama with QK-norm in each head, and sliding windows in some layers.

    Source: Yang et al. 2025, https://arxiv.org/abs/2505.09388.
    """

    model_type = "qwen3"
    qk_norm = True

    def architecture(self, shape: Shape) -> str:
        return "Qwen3ForCausalLM"

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return layer_types(shape)
