"""DINOv2."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.vision import VisionShape
from ordinate.pretrained.dino_like import DinoLike


class Dinov2(DinoLike):
    """DINOv2: a ViT trained by self-supervised learning (self-distillation between views of an image).

    Source: Oquab et al. 2024, https://arxiv.org/abs/2304.07193.
    """

    model_type = "dinov2"
    prefix = "dinov2."
    defaults: ClassVar[Mapping[str, Any]] = {**DinoLike.defaults, "patch_size": 14}
    classifier_class = "Dinov2ForImageClassification"
    base_class = "Dinov2Model"

    def specific_config(self, shape: VisionShape) -> dict[str, Any]:
        return super().specific_config(shape) | {"use_mask_token": False}
