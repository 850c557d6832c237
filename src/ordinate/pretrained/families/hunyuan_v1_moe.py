"""Hunyuan with experts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained.hunyuan_like import HunyuanLike
from ordinate.pretrained.moe_like import MoeLike

COUNT, CHOSEN = "num_experts", "moe_topk"
"""The keys of the number of experts, and of those of each token: a number, or one for each layer."""


class HunyuanV1Moe(HunyuanLike, MoeLike):
    """Hunyuan with a mixture of experts in every layer, and a network beside them that every token has.

    Source: Tencent Hunyuan Team 2025, Hunyuan-A13B, https://github.com/Tencent-Hunyuan/Hunyuan-A13B.
    """

    model_type = "hunyuan_v1_moe"
    base_class = "HunYuanMoEV1Model"
    causal_lm_class = "HunYuanMoEV1ForCausalLM"
    aliases: ClassVar[Mapping[str, str]] = {"num_experts_per_tok": CHOSEN, "num_local_experts": COUNT}
    defaults: ClassVar[Mapping[str, Any]] = {**HunyuanLike.usual, COUNT: 1, CHOSEN: 1}
    count_key = COUNT
    router = "gate.wg"
    shared = "shared_mlp"

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        count, layers, given = self.expert_count(config), config["num_hidden_layers"], config[CHOSEN]
        each = given[:layers] if isinstance(given, list) else [given] * layers
        fits = len(each) == layers and len(set(each)) == 1 and 0 < each[0] <= count
        must = f"{CHOSEN} must be one number for all layers, of at most {COUNT}"
        need(fits, must, f"got {shown(given)} of {count}", "load another checkpoint")
        return {"experts": ExpertOptions(count=count, chosen=each[0], shared_hidden=config["intermediate_size"])}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options = shape.experts
        same = options is not None and not options.dense_layers and options.shared_hidden == shape.hidden_width
        must = f"a {self.model_type} has experts in every layer, and a shared network of the width of one"
        need(same, must, f"got experts={options}", "use save_pretrained instead")
        return {} if options is None else {COUNT: options.count, CHOSEN: options.chosen}
