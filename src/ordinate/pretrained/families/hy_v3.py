"""Hy3."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import CHOSEN, CHOSEN_GROUPS, GROUPS, INNER, DeepseekMoeLike
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts

COUNT, SHARED, NORMALISED = "num_experts", "num_shared_experts", "norm_topk_prob"
"""Keys of the number of experts, of the widths of an expert that the shared network has, and one that it lacks."""


class HyV3(DeepseekMoeLike):
    """Hy3: Llama with QK-norm, and experts as in DeepSeek-V3 in all layers but the first, or in those named.

    Source: the model `HYV3ForCausalLM` of transformers, version 5, of the HunYuan team of Tencent.
    """

    model_type = "hy_v3"
    base_class = "HYV3Model"
    causal_lm_class = "HYV3ForCausalLM"
    # transformers has no other
    heads = ()
    predictor = 80
    count_key = COUNT
    shared_key = SHARED
    scale_key = "router_scaling_factor"
    router = "router.gate"
    shared = "shared_mlp"
    choice_bias_name = "expert_bias"
    expert_sizes = frozenset({COUNT, "num_local_experts", CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    aliases: ClassVar[Mapping[str, str]] = {"num_local_experts": COUNT}
    renamed: ClassVar[Mapping[str, str]] = {
        ".mlp.router.gate.": ".mlp.gate.",
        ".mlp.expert_bias": ".mlp.e_score_correction_bias",
        ".mlp.shared_mlp.": ".mlp.shared_experts.",
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 120_832,
        "intermediate_size": 13_312,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 11_158_840.0,
        "attention_bias": False,
        "mlp_bias": False,
        COUNT: 192,
        CHOSEN: 8,
        SHARED: 1,
        INNER: 1536,
        scale_key: 2.826,
        KINDS: None,
    }
    optional_biases = ("attention_bias", "mlp_bias")
    qk_norm = True

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Say what all models of the family have: one group of experts, and weights that sum to 1."""
        return {**super().complete_config(config, names), GROUPS: 1, CHOSEN_GROUPS: 1, NORMALISED: True}

    def shape(self, config: Mapping[str, Any]) -> Shape:
        found = super().shape(config)
        must = "mlp_bias, which of experts only the shared network has, needs a model without them"
        need(not config["mlp_bias"] or found.experts is None, must, "got both", "load another checkpoint")
        return found

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        made = super().expert_config(shape)
        return {name: value for name, value in made.items() if name in self.defaults}

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return layers_without_experts(config, 1)

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return layer_kinds(shape, layers)
