"""Solar Open."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    GROUPS,
    INNER,
    PUBLISHED_COUNT,
    SHARED,
    DeepseekMoeLike,
)
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec


class SolarOpen(DeepseekMoeLike):
    """Solar Open: Llama with experts as in DeepSeek-V3 in every layer.

    Source: Upstage 2026, Solar Open Technical Report, https://arxiv.org/abs/2601.07022.
    """

    model_type = "solar_open"
    base_class = "SolarOpenModel"
    causal_lm_class = "SolarOpenForCausalLM"
    # transformers has no other
    heads = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 196_608,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "attention_bias": False,
        INNER: 1280,
        CHOSEN: 8,
        SHARED: 1,
        PUBLISHED_COUNT: 128,
        "routed_scaling_factor": 1.0,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        "norm_topk_prob": True,
    }
    optional_biases = ("attention_bias",)
    out_bias = False

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Say that there is no other hidden width than that of an expert."""
        return {**super().complete_config(config, names), "intermediate_size": config[INNER]}

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        # its frequencies follow partial_rotary_factor, of which it runs those that round to the whole head
        parameters = rope_parameters(config, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"])

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return ()

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        must = f"a {self.model_type} has experts in every layer"
        need(not layers, must, f"got none in layers {list(layers)}", "use save_pretrained instead")
        return {}
