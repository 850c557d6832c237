"""OLMoE."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.clipped_like import ClippedLike
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike


class Olmoe(ClippedLike, MoeLike):
    """OLMoE: Llama with a mixture of experts, and norms of queries and keys over all heads together.

    Values, and queries and keys after their norms, are clipped if so set.

    Source: Muennighoff et al. 2024, OLMoE: Open Mixture-of-Experts Language Models, https://arxiv.org/abs/2409.02060.
    """

    model_type = "olmoe"
    base_class = "OlmoeModel"
    causal_lm_class = "OlmoeForCausalLM"
    # transformers has no other
    heads = ()
    count_key = "num_experts"
    aliases: ClassVar[Mapping[str, str]] = {COUNT: "num_experts"}
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
        "num_experts": 64,
        CHOSEN: 8,
        "norm_topk_prob": False,
        "clip_qkv": None,
    }
    optional_biases = ("attention_bias",)
    qk_norm = True
    qk_norm_across = True
    clip_options = ("variant.clip_after_norm=true",)

    def config(self, shape: Shape) -> dict[str, Any]:
        width = shape.bindable_sizes["head_width"]
        must = f"the heads of an {self.model_type} have the width of the model together"
        came = f"got {shape.heads} heads of head_width={width} for width={shape.width}"
        need(shape.heads * width == shape.width, must, came, "leave head_width out, or use save_pretrained")
        return super().config(shape)

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        own: ExpertOptions = super().experts(config)["experts"]
        return {"experts": replace(own, normalise=bool(config["norm_topk_prob"]))}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        normalise = shape.experts is not None and shape.experts.normalise
        return {**super().expert_config(shape), "norm_topk_prob": normalise}
