"""Cohere 2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.cohere_like import CohereLike
from ordinate.pretrained.rope_parameters import (
    DEFAULT_THETA,
    NONE,
    interleaved,
    rope_parameters,
    rope_spec,
    rotating_layers_config,
)
from ordinate.pretrained.sliding_windows import every_nth_whole, layer_types, layer_windows


class Cohere2(CohereLike):
    """Cohere 2 (Command R7B and A): RoPE in layers with a sliding window and none in the others.

    Source: Cohere 2025, Command A, https://arxiv.org/abs/2504.00698; Yang et al. 2025,
        https://arxiv.org/abs/2501.18795.
    """

    model_type = "cohere2"
    base_class = "Cohere2Model"
    causal_lm_class = "Cohere2ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **CohereLike.usual,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "layer_types": None,
    }

    def schemes(self, config: Mapping[str, Any], head_width: int) -> str:
        rope = interleaved(rope_spec(rope_parameters(config), head_width, config["max_position_embeddings"]))
        return ",".join(NONE if window is None else rope for window in self.windows(config))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters, _ = rotating_layers_config(self.model_type, shape, head_width, DEFAULT_THETA)
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.defaults["sliding_window"]
        return {"rope_parameters": parameters, "sliding_window": window, "layer_types": found["layer_types"]}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole(config))
