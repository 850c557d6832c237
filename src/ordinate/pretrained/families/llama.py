"""Llama."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.llama_like import LlamaLike


class Llama(LlamaLike):
    """Llama 1 to 3, and models with the same `model_type`.

    Source: Touvron et al. 2023, https://arxiv.org/abs/2302.13971.
    """

    model_type = "llama"
    base_class = "LlamaModel"
    causal_lm_class = "LlamaForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_000,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")
