"""Qwen2 with experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.moe_like import CHOSEN
from ordinate.pretrained.qwen_moe_like import INNER, PUBLISHED_COUNT, QwenMoeLike
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

SHARED = "shared_expert_intermediate_size"


class Qwen2Moe(QwenMoeLike):
    """Qwen2 with a mixture of experts, and a network beside them that every token has, multiplied by a gate.

    Source: Yang et al. 2024, https://arxiv.org/abs/2407.10671.
    """

    model_type = "qwen2_moe"
    base_class = "Qwen2MoeModel"
    causal_lm_class = "Qwen2MoeForCausalLM"
    count_key = PUBLISHED_COUNT
    defaults: ClassVar[Mapping[str, Any]] = {
        **QwenMoeLike.usual_experts,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_window_layers": 28,
        "layer_types": None,
        "qkv_bias": True,
        PUBLISHED_COUNT: 60,
        CHOSEN: 4,
        INNER: 1408,
        SHARED: 5632,
    }
    expert_sizes = frozenset({PUBLISHED_COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    optional_biases = ("qkv_bias",)
    bias_key = "qkv_bias"
    out_bias = False
    shared = "shared_expert"

    def shared_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"shared_hidden": config[SHARED], "shared_gate": True}

    def shared_config(self, options: ExpertOptions) -> dict[str, Any]:
        return {SHARED: options.shared_hidden or self.defaults[SHARED]}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        first, types = config["max_window_layers"], config["layer_types"]
        if types is None and config["use_sliding_window"] and first is not None:
            # every other one of the first layers
            layers = range(config["num_hidden_layers"])
            types = [SLIDING if layer % 2 == 0 and layer < first else FULL for layer in layers]
        return layer_windows({**config, "layer_types": types})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return layer_types(shape)
