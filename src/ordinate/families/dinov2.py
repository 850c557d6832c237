"""DINOv2."""

from typing import Any

from ordinate.checkpoints.dino_like import DinoLike
from ordinate.models.vision import VisionShape


class Dinov2(DinoLike):
    """ViT that learned without labels, by telling views of one image from those of others.

    Source: Oquab et al. 2024, https://arxiv.org/abs/2304.07193.
    """

    model_type = "dinov2"
    prefix = "dinov2."
    classifier = "Dinov2ForImageClassification"
    plain = "Dinov2Model"

    def said(self, shape: VisionShape) -> dict[str, Any]:
        """No token that stands for hidden patches."""
        return super().said(shape) | {"use_mask_token": False}
