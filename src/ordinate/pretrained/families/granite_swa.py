"""Granite with sliding windows."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.granite_swa_like import GraniteSwaLike


class GraniteSwa(GraniteSwaLike):
    """Granite with a sliding window in three of four layers, attention sinks, and a theta of RoPE for each layer.

    Source: the model `GraniteSWAForCausalLM` of transformers, version 5, of the Granite Team, IBM.
    """

    model_type = "granite_swa"
    base_class = "GraniteSWAModel"
    causal_lm_class = "GraniteSWAForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **GraniteSwaLike.defaults,
        **GraniteSwaLike.window_defaults,
        "vocab_size": 100_352,
        "hidden_size": 2560,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "mlp_bias": False,
    }
    optional_biases = ("attention_bias", "mlp_bias")
