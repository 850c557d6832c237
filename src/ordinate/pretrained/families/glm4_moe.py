"""GLM-4.5."""

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
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters

PREDICTORS = "num_nextn_predict_layers"
"""The key of the number of layers behind those of the model, for tokens after the next one."""


class Glm4Moe(DeepseekMoeLike):
    """GLM-4.5, 4.6 and 4.7: RoPE on a part of each head, experts as in DeepSeek-V3, and QK-norm in the largest.

    The layers that predict tokens after the next one are not read, as in transformers.

    Source: GLM-4.5 Team 2025, GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models,
        https://arxiv.org/abs/2508.06471.
    """

    model_type = "glm4_moe"
    base_class = "Glm4MoeModel"
    causal_lm_class = "Glm4MoeForCausalLM"
    # transformers has no other
    heads = ()
    aliases: ClassVar[Mapping[str, str]] = {**DeepseekMoeLike.aliases, "num_mtp_layers": PREDICTORS}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 151_552,
        "intermediate_size": 10_944,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "attention_bias": False,
        "use_qk_norm": False,
        INNER: 1408,
        CHOSEN: 8,
        SHARED: 1,
        PUBLISHED_COUNT: 128,
        "routed_scaling_factor": 1.0,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        FIRST: 1,
        "norm_topk_prob": True,
        PREDICTORS: 1,
    }
    optional_biases = ("attention_bias",)
    out_bias = False
    qk_norm_key = "use_qk_norm"

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        parameters = rope_parameters(config, partial=True)
        return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters = spec_to_rope_parameters(shape.scheme_spec, head_width, partial=True)
        # without it, the factor is another one
        return {"rope_parameters": {"partial_rotary_factor": 1.0} | parameters}

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one of the layers behind the last."""
        start, layers = f"{self.prefix}layers.", range(shape.layers, shape.layers + self.settings[PREDICTORS])
        return super().ignores(name, shape) or any(name.startswith(f"{start}{layer}.") for layer in layers)
