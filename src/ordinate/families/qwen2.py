"""Qwen2."""

from collections.abc import Mapping
from typing import Any

from ordinate.checkpoints.llama_like import LlamaLike, layer_types, layer_windows
from ordinate.models.shape import Shape


class Qwen2(LlamaLike):
    """Llama with numbers added after queries, keys and values, and windows in some layers.

    Source: Yang et al. 2024, https://arxiv.org/abs/2407.10671.
    """

    model_type = "qwen2"
    bias = True

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "Qwen2ForCausalLM"

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """Those of `layer_types`."""
        return layer_windows(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        """Those of `layer_types`."""
        return layer_types(shape)
