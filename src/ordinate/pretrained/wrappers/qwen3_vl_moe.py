"""Qwen3-VL with experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.qwen_vl_like import Qwen3VlLike


class Qwen3VlMoe(Qwen3VlLike):
    """Qwen3-VL of texts, images and videos with a mixture of experts, around a qwen3_moe.

    Source: Bai et al. 2025, https://arxiv.org/abs/2511.21631.
    """

    model_type = "qwen3_vl_moe"
    causal_lm_class = "Qwen3VLMoeForConditionalGeneration"
    base_class = "Qwen3VLMoeModel"
    text_type = "qwen3_vl_moe_text"
    family = "qwen3_moe"
    text_settings: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": None,
        "hidden_act": "silu",
        "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e5,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": None,
        "moe_intermediate_size": 1408,
        "num_experts_per_tok": 4,
        "num_experts": 60,
    }
    # weights of the experts of a token always add up to 1
    fixed_settings: ClassVar[Mapping[str, Any]] = {**Qwen3VlLike.fixed_settings, "norm_topk_prob": True}

    def transposed(self, name: str, size: tuple[int, ...], text: Mapping[str, Any]) -> bool:
        # as transformers does, which asks whether the sizes are its own
        axis = {"gate_up_proj": -1, "down_proj": -2}.get(name.rpartition(".")[2])
        return ".experts." in name and axis is not None and len(size) == 3 and size[axis] != text["hidden_size"]
