"""GLM-4.5."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.deepseek_moe_like import CHOSEN, INNER, PREDICTORS
from ordinate.pretrained.glm_moe_like import GlmMoeLike


class Glm4Moe(GlmMoeLike):
    """GLM-4.5, 4.6 and 4.7: RoPE on a part of each head, experts as in DeepSeek-V3, and QK-norm in the largest.

    The layers that predict tokens after the next one are not read, as in transformers.

    Source: GLM-4.5 Team 2025, GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models,
        https://arxiv.org/abs/2508.06471.
    """

    model_type = "glm4_moe"
    defaults: ClassVar[Mapping[str, Any]] = {
        **GlmMoeLike.usual,
        "vocab_size": 151_552,
        "intermediate_size": 10_944,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "use_qk_norm": False,
        INNER: 1408,
        CHOSEN: 8,
        "routed_scaling_factor": 1.0,
        PREDICTORS: 1,
    }
