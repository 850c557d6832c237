"""ViT."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checkpoints.vit_like import VitLike
from ordinate.family import ACTIVATIONS, Rule, activation_of, linear, need_activation, need_settings
from ordinate.models.vision import VisionShape


class Vit(VitLike):
    """The transformer that reads an image as a sentence of patches.

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
    classifier = "ViTForImageClassification"
    plain = "ViTModel"

    def choices(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A pooler where there is no head."""
        need_settings(self, config, pooler_act="tanh", pooler_output_size=config["hidden_size"])
        return {
            "feedforward": need_activation(config["hidden_act"], ACTIVATIONS),
            "hidden": config["intermediate_size"],
            "top": "classes" if self.classifier in config["architectures"] else "pooler",
        }

    def said(self, shape: VisionShape) -> dict[str, Any]:
        """The same in its words."""
        return {"hidden_act": activation_of(shape.feedforward), "intermediate_size": shape.hidden_width}

    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[Rule]:
        """How the tensors of norms and feed-forward are called, and those of the pooler."""
        pooler = linear("pooler", f"{self.prefix}pooler.dense", bias=True) if shape.top == "pooler" else []
        return [
            *linear(f"{here}.mixer_norm", f"{there}.layernorm_before", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.layernorm_after", bias=True),
            *linear(f"{here}.feedforward.widen", f"{there}.intermediate.dense", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.output.dense", bias=True),
            *pooler,
        ]
