"""Qwen3 with experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.moe_like import CHOSEN, COUNT
from ordinate.pretrained.qwen_moe_like import INNER, PUBLISHED_COUNT, QwenMoeLike
from ordinate.pretrained.sliding_windows import one_window, one_window_config


class Qwen3Moe(QwenMoeLike):
    """Qwen3 with a mixture of experts: in every layer, every n-th, or all but some.

    Source: Yang et al. 2025, https://arxiv.org/abs/2505.09388.
    """

    model_type = "qwen3_moe"
    base_class = "Qwen3MoeModel"
    causal_lm_class = "Qwen3MoeForCausalLM"
    span_prefix = "transformer."
    aliases: ClassVar[Mapping[str, str]] = {PUBLISHED_COUNT: COUNT}
    fallback_aliases = frozenset({PUBLISHED_COUNT})
    defaults: ClassVar[Mapping[str, Any]] = {
        **QwenMoeLike.usual_experts,
        "intermediate_size": 6144,
        "num_key_value_heads": 4,
        "attention_bias": False,
        COUNT: 128,
        CHOSEN: 8,
        INNER: 768,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config) if config["use_sliding_window"] else (None,)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = one_window_config(self.model_type, shape)
        return {**found, "use_sliding_window": found["sliding_window"] is not None}
