"""The layers of Gemma 3, of a decoder or an encoder."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.gemma_like import PeriGemma
from ordinate.pretrained.layer_type_ropes import layer_type_rope, layer_type_ropes_config
from ordinate.pretrained.sliding_windows import FULL, SLIDING, every_nth_whole, layer_windows

THETA, NEAR_THETA = 1e6, 1e4


class Gemma3Like(PeriGemma):
    """Gemma-3-like decoders: windows in five of six layers, which have a RoPE of their own, and QK-norm."""

    model_type = "gemma3_text"
    base_class = "Gemma3TextModel"
    causal_lm_class = "Gemma3ForCausalLM"
    heads = ("classes",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **PeriGemma.usual,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "use_bidirectional_attention": False,
        "sliding_window_pattern": 6,
        "final_logit_softcapping": None,
    }
    qk_norm = True

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        far, near = config.get("rope_theta", THETA), config.get("rope_local_base_freq", NEAR_THETA)
        whole = layer_type_rope(config, FULL, head_width, scaled=True, theta=far)
        windowed = layer_type_rope(config, SLIDING, head_width, scaled=False, theta=near)
        return ",".join(whole if window is None else windowed for window in self.windows(config))

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        return layer_type_ropes_config(self.model_type, shape, head_width, {FULL: THETA, SLIDING: NEAR_THETA})

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return layer_windows(every_nth_whole(config))
