"""Base class of decoders like GLM-4.5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN_GROUPS,
    FIRST,
    GROUPS,
    PREDICTORS,
    PREDICTORS_ALIAS,
    PUBLISHED_COUNT,
    SHARED,
    DeepseekMoeLike,
)
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters, rope_spec, spec_to_rope_parameters


class GlmMoeLike(DeepseekMoeLike):
    """Decoders like GLM-4.5: RoPE on a part of each head, experts as in DeepSeek-V3, and QK-norm if so set.

    Must: as `LlamaLike`; a `partial_rotary_factor` among `defaults`.
    """

    base_class = "Glm4MoeModel"
    causal_lm_class = "Glm4MoeForCausalLM"
    # transformers has no other
    heads = ()
    usual: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "max_position_embeddings": 131_072,
        "attention_bias": False,
        SHARED: 1,
        PUBLISHED_COUNT: 128,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        FIRST: 1,
        "norm_topk_prob": True,
    }
    """Default values that these families share."""
    aliases: ClassVar[Mapping[str, str]] = {**DeepseekMoeLike.aliases, PREDICTORS_ALIAS: PREDICTORS}
    fallback_aliases = frozenset({PREDICTORS_ALIAS})
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
