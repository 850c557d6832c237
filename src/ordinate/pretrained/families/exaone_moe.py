"""K-EXAONE."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import CHOSEN, CHOSEN_GROUPS, FIRST, GROUPS, INNER, DeepseekMoeLike
from ordinate.pretrained.exaone_like import ExaoneLike
from ordinate.pretrained.mlp_layer_types import KINDS, layer_kinds, layers_without_experts

COUNT, SHARED = "num_experts", "num_shared_experts"
"""The keys of the number of experts, and of the widths of an expert that the shared network has."""
BIAS = "e_score_correction_bias"


class ExaoneMoe(ExaoneLike, DeepseekMoeLike):
    """K-EXAONE: the attention of EXAONE 4, norms before the branches, and experts as in DeepSeek-V3.

    Layers that predict tokens after the next one are not read, as in transformers.

    Source: LG AI Research 2026, K-EXAONE Technical Report, https://arxiv.org/abs/2601.01739.
    """

    model_type = "exaone_moe"
    base_class = "ExaoneMoeModel"
    causal_lm_class = "ExaoneMoeForCausalLM"
    # transformers has no other
    heads = ()
    count_key = COUNT
    shared_key = SHARED
    expert_sizes = frozenset({COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    aliases: ClassVar[Mapping[str, str]] = {}
    choice_bias_name = BIAS
    renamed: ClassVar[Mapping[str, str]] = {f"mlp.{BIAS}": f"mlp.gate.{BIAS}"}
    defaults: ClassVar[Mapping[str, Any]] = {
        **ExaoneLike.usual,
        "pad_token_id": 0,
        KINDS: None,
        FIRST: 1,
        INNER: 1024,
        COUNT: 64,
        CHOSEN: 8,
        SHARED: 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        GROUPS: 1,
        CHOSEN_GROUPS: 1,
    }

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return layers_without_experts(config, config[FIRST], exact=True)

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return layer_kinds(shape, layers)

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one for tokens after the next one."""
        return super().ignores(name, shape) or name.startswith("mtp.")
