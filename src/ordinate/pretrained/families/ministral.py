"""Ministral."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import layer_types, layer_windows

# their names in files of the family mistral, which have `layer_types`
OLDER = "Mistral"


class Ministral(LlamaLike):
    """Ministral: Mistral with sliding windows in the layers that `layer_types` names, in all of them by default.

    Source: Mistral AI 2024, Un Ministral, des Ministraux, https://mistral.ai/news/ministraux.
    """

    model_type = "ministral"
    base_class = "MinistralModel"
    causal_lm_class = "MinistralForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
        "layer_types": None,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read the class from the name that it has in files of the family mistral."""
        classes = [
            f"{self.base_class.removesuffix('Model')}{name.removeprefix(OLDER)}" if name.startswith(OLDER) else name
            for name in config.get("architectures") or ()
        ]
        return {**config, "architectures": classes}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": 0})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.defaults["sliding_window"]
        return {"sliding_window": window, "layer_types": found["layer_types"]}
