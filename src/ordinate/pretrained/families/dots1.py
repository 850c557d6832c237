"""dots.llm1."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    FIRST,
    GROUPS,
    INNER,
    PUBLISHED_COUNT,
    SHARED,
    DeepseekMoeLike,
)
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import layer_types, layer_windows


class Dots1(DeepseekMoeLike):
    """dots.llm1: Qwen3 with experts as in DeepSeek-V3.

    Source: Huo et al. 2025, dots.llm1 Technical Report, https://arxiv.org/abs/2506.05767.
    """

    model_type = "dots1"
    base_class = "Dots1Model"
    causal_lm_class = "Dots1ForCausalLM"
    # transformers has no other
    heads = ()
    null_is_false = frozenset({"norm_topk_prob"})
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 152_064,
        "hidden_size": 4608,
        "intermediate_size": 10_944,
        "num_hidden_layers": 62,
        "num_key_value_heads": 32,
        "max_position_embeddings": 2048,
        "sliding_window": 4096,
        "max_window_layers": 62,
        "layer_types": None,
        "attention_bias": False,
        INNER: 1408,
        CHOSEN: None,
        SHARED: None,
        PUBLISHED_COUNT: None,
        "routed_scaling_factor": 1.0,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        FIRST: 0,
        "norm_topk_prob": False,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        return {name: found[name] for name in ("sliding_window", "layer_types")}
