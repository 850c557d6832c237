"""SmolLM3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import NONE, rotating_layers, rotating_layers_config
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

THETA = 2e6


class Smollm3(LlamaLike):
    """SmolLM3: Llama without RoPE in some layers, in every fourth one by default, and windows in them if so set.

    Source: Hugging Face 2025, SmolLM3, https://huggingface.co/blog/smollm3; the plan of the layers is that of Yang et
        al. 2025, https://arxiv.org/abs/2501.18795.
    """

    model_type = "smollm3"
    base_class = "SmolLM3Model"
    causal_lm_class = "SmolLM3ForCausalLM"
    span_prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "pad_token_id": 128_004,
        "rope_theta": THETA,
        "use_sliding_window": False,
        "sliding_window": None,
        "no_rope_layers": None,
        "no_rope_layer_interval": 4,
        "layer_types": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
    }
    optional_biases = ("attention_bias", "mlp_bias")

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        rope = super().scheme(config, head_width)
        return ",".join(rope if rotates else NONE for rotates in rotating_layers(config))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        parameters, rotating = rotating_layers_config(self.model_type, shape, head_width, THETA)
        # ones are layers with rope
        return {"rope_parameters": parameters, "no_rope_layers": [int(rotates) for rotates in rotating]}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        sliding = config["use_sliding_window"] and config["sliding_window"] is not None
        usual = [FULL if rotates or not sliding else SLIDING for rotates in rotating_layers(config)]
        types = usual if config["layer_types"] is None else config["layer_types"]
        return layer_windows({**config, "layer_types": types, "max_window_layers": None})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return layer_types(shape)
