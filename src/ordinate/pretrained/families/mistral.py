"""Mistral."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike, layer_windows


class Mistral(LlamaLike):
    """Mistral: Llama with sliding-window attention in every layer, or in those that `layer_types` names (Ministral).

    Source: Jiang et al. 2023, https://arxiv.org/abs/2310.06825.
    """

    model_type = "mistral"
    base_class = "MistralModel"
    causal_lm_class = "MistralForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the class: with `layer_types`, null too, AutoModel takes that of Ministral."""
        if "layer_types" in config:
            self.span_prefix = "transformer."
        return dict(config)

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        if "layer_types" in config:
            return layer_windows({**config, "use_sliding_window": True, "max_window_layers": 0})
        return (config["sliding_window"],)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        windows = set(shape.sliding_windows)
        need(
            len(windows) == 1,
            "a mistral must have the same window in every layer",
            f"got sliding_windows={shape.sliding_windows}",
            "use save_pretrained instead",
        )
        return {"sliding_window": windows.pop()}
