"""Mixtral."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike
from ordinate.pretrained.sliding_windows import one_window, one_window_config


class Mixtral(MoeLike):
    """Mixtral: Mistral with a mixture of experts in every layer.

    Source: Jiang et al. 2024, Mixtral of Experts, https://arxiv.org/abs/2401.04088.
    """

    model_type = "mixtral"
    base_class = "MixtralModel"
    causal_lm_class = "MixtralForCausalLM"
    aliases: ClassVar[Mapping[str, str]] = {"num_experts": COUNT}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": None,
        COUNT: 8,
        CHOSEN: 2,
    }
    expert_layer = "block_sparse_moe"
    gate_names = ("w1", "w3")
    out_name = "w2"

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        return one_window(config)

    def window_config(self, shape: Shape) -> dict[str, Any]:
        return one_window_config(self.model_type, shape)
