"""GLM-4.7-Flash."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    GROUPS,
    INNER,
    PREDICTORS,
    PUBLISHED_COUNT,
    SHARED,
    DeepseekMoeLike,
)
from ordinate.pretrained.latent_like import CONTENT, LAYOUT, QUERY_RANK, RANK, ROTATED, VALUE
from ordinate.pretrained.latent_moe_like import LatentMoeLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts


class Glm4MoeLite(LatentMoeLike):
    """GLM-4.7-Flash: latent attention, and experts as in GLM-4.5 in the layers that config.json names.

    Source: the model `Glm4MoeLiteForCausalLM` of transformers, version 5, of the GLM-4.5 Team.
    """

    model_type = "glm4_moe_lite"
    base_class = "Glm4MoeLiteModel"
    causal_lm_class = "Glm4MoeLiteForCausalLM"
    # transformers has no other
    heads = ()
    predictor = 47
    partial_rates = True
    aliases: ClassVar[Mapping[str, str]] = {**DeepseekMoeLike.aliases, "head_dim": ROTATED}
    defaults: ClassVar[Mapping[str, Any]] = {
        **LatentMoeLike.usual,
        "vocab_size": 154_880,
        "hidden_size": 2048,
        "intermediate_size": 10_240,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "max_position_embeddings": 202_752,
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        RANK: 512,
        QUERY_RANK: 768,
        CONTENT: 192,
        ROTATED: 64,
        VALUE: 256,
        LAYOUT: True,
        INNER: 1536,
        CHOSEN: 4,
        SHARED: 1,
        PUBLISHED_COUNT: 64,
        "routed_scaling_factor": 1.8,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        KINDS: None,
        "norm_topk_prob": True,
        PREDICTORS: 0,
    }

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return layers_without_experts(config, 1)

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return layer_kinds(shape, layers)
