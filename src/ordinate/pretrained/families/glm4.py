"""GLM-4."""

from collections.abc import Mapping
from typing import ClassVar

from ordinate.pretrained.glm_like import GlmLike


class Glm4(GlmLike):
    """GLM-4 of 2025: GLM with norms before and after each branch.

    Source: Z.ai 2025, GLM-4-0414, https://github.com/zai-org/GLM-4.
    """

    model_type = "glm4"
    base_class = "Glm4Model"
    causal_lm_class = "Glm4ForCausalLM"
    norm_position = "peri"
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "input_layernorm",
        "mixer_out_norm": "post_self_attn_layernorm",
        "feedforward_norm": "post_attention_layernorm",
        "feedforward_out_norm": "post_mlp_layernorm",
    }
