"""Mistral."""

from collections.abc import Mapping
from typing import Any

from ordinate.checkpoints.llama_like import LlamaLike
from ordinate.checks import need
from ordinate.models.shape import Shape


class Mistral(LlamaLike):
    """Llama with a window in every layer.

    Source: Jiang et al. 2023, https://arxiv.org/abs/2310.06825.
    """

    model_type = "mistral"

    def architecture(self, shape: Shape) -> str:
        """A language model."""
        return "MistralForCausalLM"

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        """One for all layers."""
        return (config.get("sliding_window"),)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        """One for all layers."""
        windows = set(shape.windows)
        need(len(windows) == 1, "a mistral has one window", f"got {shape.windows}", "save it as our own")
        return {"sliding_window": windows.pop()}
