"""OLMoE."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.clipped_like import ClippedLike
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN
from ordinate.pretrained.olmo_moe_like import NORMALISE, PUBLISHED_COUNT, OlmoMoeLike


class Olmoe(ClippedLike, OlmoMoeLike):
    """OLMoE: Llama with a mixture of experts, and norms of queries and keys over all heads together.

    Values, and queries and keys after their norms, are clipped if so set.

    Source: Muennighoff et al. 2024, OLMoE: Open Mixture-of-Experts Language Models, https://arxiv.org/abs/2409.02060.
    """

    model_type = "olmoe"
    base_class = "OlmoeModel"
    causal_lm_class = "OlmoeForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 50_304,
        "hidden_size": 2048,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": None,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 1,
        "attention_bias": False,
        PUBLISHED_COUNT: 64,
        CHOSEN: 8,
        NORMALISE: False,
        "clip_qkv": None,
    }
    clip_options = ("variant.clip_after_norm=true",)

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        must = f"the heads of an {self.model_type} have the width of the model together"
        came = f"got {shape.heads} heads of head_width={width} for width={shape.width}"
        need(shape.heads * width == shape.width, must, came, "leave head_width out, or use save_pretrained")
        return super().config(shape)
