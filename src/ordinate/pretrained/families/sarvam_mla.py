"""Sarvam 105B."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    FIRST,
    GROUPS,
    INNER,
    PREDICTORS,
    PREDICTORS_ALIAS,
    PUBLISHED_COUNT,
    SHARED,
    DeepseekMoeLike,
)
from ordinate.pretrained.latent_like import CONTENT, LAYOUT, QUERY_RANK, RANK, ROTATED, VALUE
from ordinate.pretrained.latent_moe_like import LatentMoeLike

EARLY_YARN = "deepseek_yarn"
"""The name of YaRN in the `rope_scaling` of early files."""


class SarvamMla(LatentMoeLike):
    """Sarvam 105B: DeepSeek-V3 with other defaults.

    Source: the config `SarvamMLAConfig` of transformers, version 5, of the Sarvam team.
    """

    model_type = "sarvam_mla"
    base_class = "DeepseekV3Model"
    causal_lm_class = "DeepseekV3ForCausalLM"
    # transformers has no other
    heads = ()
    predictor = 61
    aliases: ClassVar[Mapping[str, str]] = {
        **DeepseekMoeLike.aliases,
        PREDICTORS_ALIAS: PREDICTORS,
        "num_experts": PUBLISHED_COUNT,
        "num_shared_experts": SHARED,
    }
    fallback_aliases = frozenset({PREDICTORS_ALIAS})
    expert_sizes = frozenset({*LatentMoeLike.expert_sizes, "num_experts", "num_shared_experts"})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    null_is_false = frozenset({"norm_topk_prob"})
    defaults: ClassVar[Mapping[str, Any]] = {
        **LatentMoeLike.usual,
        "vocab_size": 262_144,
        "intermediate_size": 16_384,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "max_position_embeddings": 4096,
        "attention_bias": False,
        RANK: 512,
        QUERY_RANK: None,
        CONTENT: 128,
        ROTATED: 64,
        VALUE: 128,
        LAYOUT: True,
        INNER: 2048,
        CHOSEN: 8,
        SHARED: 1,
        PUBLISHED_COUNT: 128,
        "routed_scaling_factor": 2.5,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
        FIRST: 1,
        "norm_topk_prob": True,
        PREDICTORS: 0,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read YaRN by the name that it has in early files."""
        given = config.get("rope_scaling") or {}
        if EARLY_YARN not in (given.get("type"), given.get("rope_type")):
            return super().complete_config(config, names)
        plain = {name: value for name, value in given.items() if name != "type"} | {"rope_type": "yarn"}
        told = {"rope_parameters": plain, "rope_scaling": None}
        return super().complete_config({**config, **told}, names)
