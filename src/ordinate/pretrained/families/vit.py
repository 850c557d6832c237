"""ViT."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.vision import VisionShape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.vit_like import VitLike


class Vit(VitLike):
    """Vision Transformer: an encoder over a sequence of image patches.

    Source: Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929.
    """

    model_type = "vit"
    prefix = "vit."
    defaults: ClassVar[Mapping[str, Any]] = {
        **VitLike.usual,
        "intermediate_size": 3072,
        "layer_norm_eps": 1e-12,
        "patch_size": 16,
        "pooler_act": "tanh",
        "pooler_output_size": None,
    }
    classifier_class = "ViTForImageClassification"
    base_class = "ViTModel"

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head by the class that config.json names, and by the tensors."""
        full = super().complete_config(config, names)
        pooler = any(name.endswith("pooler.dense.weight") for name in names)
        return {**full, "head": "pooler" if pooler and full["head"] == "none" else full["head"]}

    def specific_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        fields = {"feedforward": activation_kind(config, "hidden_act"), "hidden": config["intermediate_size"]}
        if config["head"] != "pooler":
            return fields
        size, width = config["pooler_output_size"], config["hidden_size"]
        # as in transformers, 0 is none of its own
        pool = {"pool_width": None if size in (None, 0, width) else size}
        return fields | pool | {"pool_activation": activation_kind(config, "pooler_act")}

    def specific_config(self, shape: VisionShape) -> dict[str, Any]:
        pool = {"pooler_output_size": shape.pool_width, "pooler_act": activation_name(shape.pool_activation)}
        inner = {"hidden_act": activation_name(shape.feedforward), "intermediate_size": shape.hidden_width}
        return inner | (pool if shape.head == "pooler" else {})

    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[TensorRule]:
        pooler = linear_rules("pooler", f"{self.prefix}pooler.dense", bias=True) if shape.head == "pooler" else []
        return [
            *linear_rules(f"{here}.mixer_norm", f"{there}.layernorm_before", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.layernorm_after", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *pooler,
        ]
