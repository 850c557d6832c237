"""Seed-OSS."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.llama_like import LlamaLike


class SeedOss(LlamaLike):
    """Seed-OSS: Llama with biases of the QKV projections, and one of the output projection if so set.

    Source: ByteDance Seed Team 2025, Seed-OSS, https://github.com/ByteDance-Seed/seed-oss.
    """

    model_type = "seed_oss"
    base_class = "SeedOssModel"
    causal_lm_class = "SeedOssForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 155_136,
        "intermediate_size": 27_648,
        "num_hidden_layers": 64,
        "num_attention_heads": 80,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 524_288,
        "pad_token_id": 1,
        "attention_bias": True,
        "attention_out_bias": False,
        "mlp_bias": False,
    }
    optional_biases = ("attention_bias", "attention_out_bias", "mlp_bias")
    out_bias_key = "attention_out_bias"
