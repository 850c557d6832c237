"""HyperCLOVA X."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.granite_like import GraniteLike

POST = "use_post_norm"
"""The key that says whether the output of each branch is normalised too."""
POST_NORMS: Mapping[str, str] = {"mixer_out_norm": "post_norm1", "feedforward_out_norm": "post_norm2"}
"""Names of those norms in checkpoints."""


class Hyperclovax(GraniteLike):
    """HyperCLOVA X SEED Think: Granite whose logits are multiplied, with norms before and after each branch.

    Source: NAVER Cloud HyperCLOVA X Team 2025, HyperCLOVA X THINK Technical Report, https://arxiv.org/abs/2506.22403.
    """

    model_type = "hyperclovax"
    base_class = "HyperCLOVAXModel"
    causal_lm_class = "HyperCLOVAXForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **GraniteLike.defaults,
        "attention_multiplier": None,
        "mlp_bias": False,
        POST: True,
    }
    heads_divide_width = True
    optional_biases = ("attention_bias", "mlp_bias")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        return replace(super().shape(config), norm_position="peri" if config[POST] else self.norm_position)

    def config(self, shape: Shape) -> dict[str, Any]:
        post = shape.norm_position == "peri"
        plain = replace(shape, norm_position=self.norm_position) if post else shape
        return {**super().config(plain), POST: post}

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        usual = config["attention_multiplier"] is None
        return {"scale": None} if usual else super().scores(config, head_width)

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().scales(config), "logit_scale": float(config["logits_scaling"])}

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        return {**super().scale_config(shape), "logits_scaling": shape.logit_scale}

    def norm_rules(self, shape: Shape) -> Sequence[TensorRule]:
        added = POST_NORMS.items() if shape.norm_position == "peri" else ()
        pairs = [linear_rules(f"blocks.{{}}.{ours}", f"model.layers.{{}}.{name}", bias=False) for ours, name in added]
        return [*super().norm_rules(shape), *(rule for pair in pairs for rule in pair)]
