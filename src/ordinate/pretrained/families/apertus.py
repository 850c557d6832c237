"""Apertus."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.models.feedforward import FeedForwardKind
from ordinate.pretrained.activation_names import HF_LEARNED
from ordinate.pretrained.llama_like import LlamaLike

THETA = 12_000_000.0
ROPE: Mapping[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": THETA,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
"""The RoPE of a config.json without one."""


class Apertus(LlamaLike):
    """Apertus: Llama with QK-norm and a feed-forward without a gate, by default with xIELU, which has parameters.

    Source: Project Apertus 2025, Apertus: Democratizing Open and Compliant LLMs for Global Language Environments,
        https://arxiv.org/abs/2509.14233.
    """

    model_type = "apertus"
    base_class = "ApertusModel"
    causal_lm_class = "ApertusForCausalLM"
    heads = ("token_classes",)
    gated = False
    gates: ClassVar[Mapping[str, FeedForwardKind]] = HF_LEARNED
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_norm": "attention_layernorm",
        "feedforward_norm": "feedforward_layernorm",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 131_072,
        "intermediate_size": 14_336,
        "num_key_value_heads": None,
        "hidden_act": "xielu",
        "max_position_embeddings": 65_536,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 3,
        "rope_theta": THETA,
        "attention_bias": False,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the RoPE of a config.json without one."""
        rope = ROPE if config["rope_parameters"] is None else config["rope_parameters"]
        return {**super().complete_config(config, names), "rope_parameters": rope}
