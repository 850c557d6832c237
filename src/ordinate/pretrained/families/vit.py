"""ViT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.models.vision import VisionShape
from ordinate.pretrained._family import (
    HF_ACTIVATIONS,
    TensorRule,
    activation_kind,
    activation_name,
    linear_rules,
    need_settings,
)
from ordinate.pretrained.vit_like import VitLike


class Vit(VitLike):
    """Vision Transformer: an encoder over a sequence of image patches.

    Source: Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929.
    """

    model_type = "vit"
    prefix = "vit."
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "qkv_bias": True,
        "num_channels": 3,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "architectures": (),
    }
    classifier_class = "ViTForImageClassification"
    base_class = "ViTModel"

    def specific_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        need_settings(self, config, pooler_act="tanh", pooler_output_size=config["hidden_size"])
        return {
            "feedforward": activation_kind(config["hidden_act"], HF_ACTIVATIONS),
            "hidden": config["intermediate_size"],
            "head": "classes" if self.classifier_class in config["architectures"] else "pooler",
        }

    def specific_config(self, shape: VisionShape) -> dict[str, Any]:
        return {"hidden_act": activation_name(shape.feedforward), "intermediate_size": shape.hidden_width}

    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[TensorRule]:
        pooler = linear_rules("pooler", f"{self.prefix}pooler.dense", bias=True) if shape.head == "pooler" else []
        return [
            *linear_rules(f"{here}.mixer_norm", f"{there}.layernorm_before", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.layernorm_after", bias=True),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *pooler,
        ]
