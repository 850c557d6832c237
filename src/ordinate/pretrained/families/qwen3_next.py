"""Qwen3-Next."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.mixers._delta_rule import DeltaRuleSizes
from ordinate.models.expert_options import ExpertOptions
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.delta_hybrid_like import LINEAR_SIZES
from ordinate.pretrained.grouped_rows import GroupedRows
from ordinate.pretrained.hybrid_like import ATTENTION_SIZES
from ordinate.pretrained.moe_like import CHOSEN
from ordinate.pretrained.qwen_hybrid_like import QwenHybridLike
from ordinate.pretrained.qwen_moe_like import INNER, PUBLISHED_COUNT, QwenMoeLike

SHARED = "shared_expert_intermediate_size"


class Qwen3Next(QwenHybridLike, QwenMoeLike):
    """Qwen3-Next: gated DeltaNet in three of four layers, gated attention in the fourth, experts in all.

    The layers that predict tokens after the next one are not read, as in transformers.

    Source: Qwen Team 2025, Qwen3-Next, https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct.
    """

    model_type = "qwen3_next"
    base_class = "Qwen3NextModel"
    causal_lm_class = "Qwen3NextForCausalLM"
    span_prefix = "transformer."
    count_key = PUBLISHED_COUNT
    defaults: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in QwenMoeLike.usual_experts.items() if "sliding_window" not in name},
        **QwenHybridLike.usual_hybrid,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "intermediate_size": 5632,
        "norm_topk_prob": True,
        PUBLISHED_COUNT: 512,
        CHOSEN: 10,
        INNER: 512,
        SHARED: 512,
    }
    expert_sizes = frozenset({PUBLISHED_COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes, *LINEAR_SIZES, *ATTENTION_SIZES})
    shared = "shared_expert"

    def shared_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"shared_hidden": config[SHARED], "shared_gate": True}

    def shared_config(self, options: ExpertOptions) -> dict[str, Any]:
        return {SHARED: options.shared_hidden or self.defaults[SHARED]}

    def projection_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        groups, each = sizes.query_heads, sizes.heads // sizes.query_heads
        keys, values = sizes.key_width, each * sizes.value_width
        # by key head: its query, its key, the values of its heads, their gates
        mixed, parts = (f"{there}.in_proj_qkvz.weight",), (keys, keys, values, values)
        rates = (f"{there}.in_proj_ba.weight",)
        return [
            GroupedRows(f"{here}.project.weight", mixed, groups, parts, (0, 1, 2)),
            GroupedRows(f"{here}.gate.weight", mixed, groups, parts, (3,)),
            GroupedRows(f"{here}.rate.weight", rates, groups, (each, each), (0,)),
            GroupedRows(f"{here}.step.weight", rates, groups, (each, each), (1,)),
        ]
