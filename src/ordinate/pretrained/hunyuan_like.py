"""Base class of Hunyuan's decoders."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import rope_parameters

ALPHA = "alpha"
"""The key of the growth of the context for which NTK scaling changes the base."""


class HunyuanLike(LlamaLike):
    """Llama-like decoders with norms of queries and keys after RoPE, whose base an alpha may multiply.

    The base times alpha^(d / (d - 2)), for heads of d channels, is NTK scaling for a context alpha times as long.

    Must: as `LlamaLike`.
    """

    heads = ("classes",)
    usual: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 290_943,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
        "attention_bias": False,
    }
    """Default values that these families share."""
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
