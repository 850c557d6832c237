"""Mistral."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import one_window, one_window_config


class Mistral(LlamaLike):
    """Mistral: Llama with sliding-window attention in every layer.

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

    @classmethod
    def read_as(cls, config: Mapping[str, Any]) -> str:
        # null too
        return "ministral" if "layer_types" in config else cls.model_type

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return one_window_config(self.model_type, shape, "save it as a ministral")
