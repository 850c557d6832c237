"""Arcee."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.feedforward import FeedForwardKind
from ordinate.pretrained.activation_names import HF_LEARNED
from ordinate.pretrained.llama_like import LlamaLike


class Arcee(LlamaLike):
    """Arcee Foundation Models: Llama with a feed-forward without a gate, by default with a squared ReLU.

    Source: Arcee AI 2025, AFM-4.5B, https://huggingface.co/arcee-ai/AFM-4.5B.
    """

    model_type = "arcee"
    base_class = "ArceeModel"
    causal_lm_class = "ArceeForCausalLM"
    span_prefix = "transformer."
    gated = False
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_LEARNED
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_000,
        "hidden_size": 2560,
        "intermediate_size": 18_432,
        "num_key_value_heads": None,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")
