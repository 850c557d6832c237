"""Sarvam 30B."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.deepseek_moe_like import CHOSEN, INNER, PREDICTORS, PUBLISHED_COUNT, SHARED
from ordinate.pretrained.glm_moe_like import GlmMoeLike
from ordinate.pretrained.published_names import renamed_rules

PUBLISHED: Mapping[str, str] = {
    "model.embed_tokens.": "model.word_embeddings.",
    ".self_attn.o_proj.": ".attention.dense.",
    ".self_attn.q_norm.": ".attention.query_layernorm.",
    ".self_attn.k_norm.": ".attention.key_layernorm.",
    ".mlp.gate.e_score_correction_bias": ".mlp.gate.expert_bias",
}
"""Parts of names of tensors of a GLM-4.5, and those in published files."""
OWN_QUERIES = "self_attn.q_proj.weight"
"""The end of the name of a tensor of queries alone, in files of transformers 5 in its own format."""


class SarvamMoe(GlmMoeLike):
    """Sarvam 30B: GLM-4.5 with RoPE on whole heads, and other names of tensors in published files.

    Source: the config `SarvamMoEConfig` of transformers, version 5, of the Sarvam team.
    """

    model_type = "sarvam_moe"
    aliases: ClassVar[Mapping[str, str]] = {
        **GlmMoeLike.aliases,
        "num_experts": PUBLISHED_COUNT,
        "num_shared_experts": SHARED,
        "use_qkv_bias": "attention_bias",
    }
    expert_sizes = frozenset({*GlmMoeLike.expert_sizes, "num_experts", "num_shared_experts"})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    renamed: ClassVar[Mapping[str, str]] = {there: here for here, there in PUBLISHED.items()}
    defaults: ClassVar[Mapping[str, Any]] = {
        **GlmMoeLike.usual,
        "vocab_size": 262_144,
        "intermediate_size": 8192,
        "num_hidden_layers": 19,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "rope_theta": 8e6,
        "partial_rotary_factor": 1.0,
        "pad_token_id": 0,
        "use_qk_norm": True,
        INNER: 1024,
        CHOSEN: 6,
        "routed_scaling_factor": 2.5,
        PREDICTORS: 0,
    }

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Read from the names of the tensors whether queries, keys and values are in one, as in published files."""
        own = any(name.endswith(OWN_QUERIES) for name in names)
        return {**super().complete_config(config, names), OWN_QUERIES: own}

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules, here = super().attention_rules(shape), "blocks.{}.mixer.project"
        if self.settings.get(OWN_QUERIES, False):
            return rules
        biased = any(rule.ours == f"{here}.bias" for rule in rules)
        fused = linear_rules(here, "model.layers.{}.attention.query_key_value", bias=biased)
        return [*fused, *(rule for rule in rules if not rule.ours.startswith(here))]

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        return renamed_rules(super().rules(shape), PUBLISHED)
