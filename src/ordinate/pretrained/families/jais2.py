"""Jais 2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.feedforward import FeedForwardKind
from ordinate.pretrained.activation_names import HF_LEARNED
from ordinate.pretrained.llama_like import LlamaLike


class Jais2(LlamaLike):
    """Jais 2: Llama with LayerNorm, biases, and a feed-forward without a gate, by default with a squared ReLU.

    Source: the model `Jais2ForCausalLM` of transformers, version 5, of Inception, MBZUAI and Cerebras.
    """

    model_type = "jais2"
    base_class = "Jais2Model"
    causal_lm_class = "Jais2ForCausalLM"
    # transformers has no other
    heads = ()
    norm = "layer"
    eps_key = "layer_norm_eps"
    gated = False
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_LEARNED
    defaults: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in LlamaLike.usual.items() if name != "rms_norm_eps"},
        "vocab_size": 150_272,
        "hidden_size": 3328,
        "intermediate_size": 26_624,
        "num_attention_heads": 26,
        "num_key_value_heads": None,
        "hidden_act": "relu2",
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "attention_bias": True,
        "mlp_bias": True,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")
