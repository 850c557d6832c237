"""Hunyuan."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters

ALPHA = "alpha"
"""The key of the growth of the context for which NTK scaling changes the base."""


class HunyuanV1Dense(LlamaLike):
    """Hunyuan without experts: Llama with norms of queries and keys after RoPE, whose base an alpha may multiply.

    The base times alpha^(d / (d - 2)), for heads of d channels, is NTK scaling for a context alpha times as long.

    Source: Tencent Hunyuan Team 2025, Hunyuan-7B, https://github.com/Tencent-Hunyuan/Hunyuan-7B.
    """

    model_type = "hunyuan_v1_dense"
    base_class = "HunYuanDenseV1Model"
    causal_lm_class = "HunYuanDenseV1ForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 290_943,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
        "attention_bias": False,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True
    qk_norms = ("query_layernorm", "key_layernorm")
    qk_norm_after = True

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        given = config.get("rope_scaling") or config.get("rope_parameters") or {}
        read, alpha = rope_parameters(config), given.get(ALPHA)
        if read["rope_type"] != "dynamic" or not alpha:
            return super().scheme(config, head_width)
        fits = isinstance(alpha, int | float) and alpha > 0
        need(fits, f"{ALPHA} must be a number above zero", f"got {shown(alpha)}", "load another checkpoint")
        must = f"{ALPHA} of rope_parameters needs a head_dim of at least 4"
        need(head_width > 2, must, f"got {head_width}", "load another checkpoint")
        theta = read["rope_theta"] * alpha ** (head_width / (head_width - 2))
        plain = {"rope_parameters": {"rope_theta": theta, "rope_type": "default"}, "rope_scaling": None}
        return super().scheme(CheckpointConfig({**config, **plain}), head_width)
