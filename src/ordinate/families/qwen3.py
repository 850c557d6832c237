"""Qwen3."""

from collections.abc import Mapping
from typing import Any

from ordinate.checkpoints.llama_like import LlamaLike, layer_types, layer_windows
from ordinate.models.shape import Shape


class Qwen3(LlamaLike):
    """Llama with each head's queries and keys normed, and windows in some layers.

    Source: Yang et al. 2025, https://arxiv.org/abs/2505.09388.
    """

    model_type = "qwen3"
    qk_norm = True

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "Qwen3ForCausalLM"

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """Those of `layer_types`."""
        return layer_windows(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        """Those of `layer_types`."""
        return layer_types(shape)
