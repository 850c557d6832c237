"""OLMo 3."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.layer_type_ropes import layer_type_rope, layer_type_ropes_config
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.sliding_windows import FULL, SLIDING, every_nth_whole, layer_types, layer_windows

THETA = 5e5
# without layer_types
EVERY = 4


class Olmo3(LlamaLike):
    """OLMo 3: OLMo 2 with sliding windows in three of four layers; RoPE is scaled in the others only.

    Source: OLMo Team 2025, Olmo 3, https://arxiv.org/abs/2512.13961.
    """

    model_type = "olmo3"
    base_class = "Olmo3Model"
    causal_lm_class = "Olmo3ForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 50_304,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 1,
        "attention_bias": False,
        "sliding_window": 4096,
        "layer_types": None,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True
    qk_norm_across = True
    norm_position = "res_post"
    norms: ClassVar[Mapping[str, str]] = {
        "mixer_out_norm": "post_attention_layernorm",
        "feedforward_out_norm": "post_feedforward_layernorm",
    }

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        whole = layer_type_rope(config, FULL, head_width, scaled=True, theta=config.get("rope_theta", THETA))
        near = layer_type_rope(config, SLIDING, head_width, scaled=False, theta=THETA)
        return ",".join(whole if window is None else near for window in self.windows(config))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return layer_type_ropes_config(self.model_type, shape, head_width, {FULL: THETA, SLIDING: THETA})

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole({**config, "sliding_window_pattern": EVERY}))

    def window_config(self, shape: Shape) -> dict[str, Any]:
        # transformers needs a number, even where no layer has a window
        return {"sliding_window": layer_types(shape)["sliding_window"] or self.defaults["sliding_window"]}
