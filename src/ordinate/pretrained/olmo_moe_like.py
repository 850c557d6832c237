"""Base class of OLMo decoders with a mixture of experts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.moe_like import COUNT, MoeLike

PUBLISHED_COUNT, NORMALISE = "num_experts", "norm_topk_prob"
"""The keys of the number of experts, and of whether the weights of those of a token are divided by their sum."""


class OlmoMoeLike(MoeLike):
    """OLMo decoders with experts in every layer, and norms of queries and keys over all heads together.

    Must: as `LlamaLike`, with `num_experts`, `num_experts_per_tok` and `norm_topk_prob` among `defaults`.
    """

    # transformers has no other
    heads = ()
    count_key = PUBLISHED_COUNT
    aliases: ClassVar[Mapping[str, str]] = {COUNT: PUBLISHED_COUNT}
    optional_biases = ("attention_bias",)
    qk_norm = True
    qk_norm_across = True

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        own: ExpertOptions = super().experts(config)["experts"]
        return {"experts": replace(own, normalise=bool(config[NORMALISE]))}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        normalise = shape.experts is not None and shape.experts.normalise
        return {**super().expert_config(shape), NORMALISE: normalise}
