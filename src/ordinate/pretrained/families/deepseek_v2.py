"""DeepSeek-V2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, need_known
from ordinate.models.shape import Shape
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.deepseek_moe_like import (
    CHOSEN,
    CHOSEN_GROUPS,
    FIRST,
    GROUPS,
    INNER,
    PUBLISHED_COUNT,
    SHARED,
)
from ordinate.pretrained.latent_like import CONTENT, QUERY_RANK, RANK, ROTATED, VALUE
from ordinate.pretrained.latent_moe_like import LatentMoeLike

METHOD = "topk_method"
"""The key of the choice of experts."""
GREEDY, GROUPED = "greedy", "group_limited_greedy"
"""Its values: the best experts, or those of the groups with the best ones."""


class DeepseekV2(LatentMoeLike):
    """DeepSeek-V2 and its Lite and Coder models: latent attention, and experts with the scores of a softmax.

    Source: DeepSeek-AI 2024, DeepSeek-V2, https://arxiv.org/abs/2405.04434.
    """

    model_type = "deepseek_v2"
    base_class = "DeepseekV2Model"
    causal_lm_class = "DeepseekV2ForCausalLM"
    # transformers has no other
    heads = ("classes",)
    aliases: ClassVar[Mapping[str, str]] = {"num_experts": PUBLISHED_COUNT}
    null_is_false = frozenset({"norm_topk_prob"})
    defaults: ClassVar[Mapping[str, Any]] = {
        **LatentMoeLike.usual,
        "vocab_size": 102_400,
        "intermediate_size": 11_008,
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
        RANK: 512,
        QUERY_RANK: 1536,
        CONTENT: 128,
        ROTATED: 64,
        VALUE: 128,
        INNER: 1407,
        CHOSEN: None,
        SHARED: 2,
        PUBLISHED_COUNT: 64,
        "routed_scaling_factor": 1.0,
        GROUPS: None,
        CHOSEN_GROUPS: None,
        METHOD: GREEDY,
        FIRST: 0,
    }
    scores_of_experts = "softmax"
    expert_sizes = frozenset({*LatentMoeLike.expert_sizes, "num_experts"})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        method = config[METHOD]
        need_known(METHOD, method, (GREEDY, GROUPED))
        for name in (GROUPS, CHOSEN_GROUPS):
            must = f"{METHOD}={GROUPED!r} needs {name}"
            need(method == GREEDY or config[name] is not None, must, "got none", "load another checkpoint")
        # with the best of all experts, or of all groups, groups have no effect
        free = method == GREEDY or config[GROUPS] == config[CHOSEN_GROUPS]
        groups = dict.fromkeys((GROUPS, CHOSEN_GROUPS), 1) if free else {}
        found = super().shape(CheckpointConfig({**config, **groups}))
        must = "mlp_bias, which the experts themselves have not, needs a model without them"
        need(not config["mlp_bias"] or found.experts is None, must, "got both", "load another checkpoint")
        return found

    def choice(self, config: Mapping[str, Any]) -> dict[str, Any]:
        groups = {"groups": config[GROUPS], "chosen_groups": config[CHOSEN_GROUPS]}
        best = {"group_scores": "best"} if config[GROUPS] > config[CHOSEN_GROUPS] else {}
        # norm_topk_prob has no effect
        return {"scores": self.scores_of_experts, "normalise": False, "wide_router": True, **groups, **best}

    def config(self, shape: Shape) -> dict[str, Any]:
        grouped = shape.experts is not None and shape.experts.groups > 1
        return {**super().config(shape), METHOD: GROUPED if grouped else GREEDY}
