"""Base class of EXAONE 4 and what has its attention."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import DEFAULT_THETA, NONE, rotating_layers_config
from ordinate.pretrained.sliding_windows import every_nth_whole, layer_types, layer_windows


class ExaoneLike(LlamaLike):
    """Llama-like decoders with QK-norm, and RoPE in layers with a sliding window and none in the others.

    Without a window all layers have RoPE.

    Must: as `LlamaLike`.
    """

    usual: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 102_400,
        "intermediate_size": 16_384,
        "num_key_value_heads": 32,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "layer_types": None,
    }
    """Default values that these families share."""
    qk_norm = True

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        rope, windows = super().scheme(config, head_width), self.windows(config)
        everywhere = config["sliding_window"] is None
        return ",".join(rope if everywhere or window is not None else NONE for window in windows)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters, _ = rotating_layers_config(self.model_type, shape, head_width, DEFAULT_THETA)
        return {"rope_parameters": parameters}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole(config))

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # with a window, layers that do not have it have no rope either
        everywhere = NONE not in shape.scheme_spec.entries
        window = found["sliding_window"] or (None if everywhere else self.defaults["sliding_window"])
        return {"sliding_window": window, "layer_types": found["layer_types"]}
