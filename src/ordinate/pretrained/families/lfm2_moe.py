"""LFM2 with experts."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.deepseek_moe_like import CHOSEN, INNER, SCALE, DeepseekMoeLike
from ordinate.pretrained.hybrid_like import TYPES
from ordinate.pretrained.lfm2_like import CONVOLUTION, Lfm2Like
from ordinate.pretrained.moe_like import MoeLike
from ordinate.pretrained.sliding_windows import FULL

COUNT, FIRST, BIASED = "num_experts", "num_dense_layers", "use_expert_bias"
"""The keys of the number of experts, of that of the first layers without, and of whether their choice has a bias."""
SUM_EPS = 1e-6
"""The number added to the sum by which the weights of experts are divided."""


class Lfm2Moe(Lfm2Like, DeepseekMoeLike):
    """LFM2 with experts in all but the first layers, chosen by sigmoids with a bias of the choice.

    Source: Liquid AI 2025, LFM2 Technical Report, https://arxiv.org/abs/2511.23404.
    """

    model_type = "lfm2_moe"
    base_class = "Lfm2MoeModel"
    causal_lm_class = "Lfm2MoeForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **Lfm2Like.usual,
        "hidden_size": 2048,
        "intermediate_size": 7168,
        INNER: 1792,
        FIRST: 2,
        CHOSEN: 4,
        COUNT: 32,
        BIASED: True,
        SCALE: 1.0,
        "norm_topk_prob": True,
    }
    aliases: ClassVar[Mapping[str, str]] = {}
    count_key, shared_key = COUNT, ""
    choice_bias_name = "expert_bias"
    expert_sizes = frozenset({COUNT, CHOSEN, INNER})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes, *Lfm2Like.optional_sizes})
    wide = (".choice_bias",)

    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        must = f"{TYPES} of a {self.model_type} must be a list of {CONVOLUTION} and {FULL}, a type for each layer"
        raise ValueError(f"{must}; got None; add it to config.json")

    def choice(self, config: Mapping[str, Any]) -> dict[str, Any]:
        normalise = bool(config["norm_topk_prob"])
        divided = {"sum_eps": SUM_EPS} if normalise else {}
        biased = bool(config[BIASED])
        return {"scores": self.scores_of_experts, "normalise": normalise, "choice_bias": biased, **divided}

    def choice_config(self, options: ExpertOptions) -> dict[str, Any]:
        must = f"a {self.model_type} has experts in one group, and sum_eps={SUM_EPS} where weights are normalised"
        fits = options.groups == 1 and (options.sum_eps == SUM_EPS or not options.normalise)
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {"norm_topk_prob": options.normalise, BIASED: options.choice_bias}

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(range(min(config[FIRST], config["num_hidden_layers"])))

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        return {FIRST: len(layers)}

    def expert_count(self, config: Mapping[str, Any]) -> int:
        return MoeLike.expert_count(self, config)
