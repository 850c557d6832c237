"""Code World Model."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

THETA, EVERY = 1e6, 4
ROPE: Mapping[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": THETA,
    "factor": 16.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
"""The RoPE of a config.json without one."""


class Cwm(LlamaLike):
    """Code World Model (CWM): Llama with sliding windows in three of four layers, or as `layer_types` says.

    Source: FAIR CodeGen team 2025, CWM: An Open-Weights LLM for Research on Code Generation with World Models,
        https://arxiv.org/abs/2510.02387.
    """

    model_type = "cwm"
    base_class = "CwmModel"
    causal_lm_class = "CwmForCausalLM"
    # transformers has no other
    heads = ()
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 128_256,
        "hidden_size": 6144,
        "intermediate_size": 21_504,
        "num_hidden_layers": 64,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": THETA,
        "sliding_window": 8192,
        "layer_types": None,
        "mlp_bias": False,
    }
    heads_divide_width = True
    optional_biases = ("mlp_bias",)

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Add the RoPE and the types of layers of a config.json without them; a window of 0 is none."""
        rope = ROPE if config["rope_parameters"] is None else config["rope_parameters"]
        count, types = config["num_hidden_layers"], config["layer_types"]
        types = [SLIDING if layer % EVERY else FULL for layer in range(count)] if types is None else types
        told = {"rope_parameters": rope, "layer_types": types, "sliding_window": config["sliding_window"] or None}
        return {**super().complete_config(config, names), **told}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows({**config, "use_sliding_window": True, "max_window_layers": None})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.defaults["sliding_window"]
        return {"sliding_window": window, "layer_types": found["layer_types"]}
