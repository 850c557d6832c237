"""DINOv2 with registers."""

from collections.abc import Mapping
from typing import Any

from ordinate.checkpoints.dino_like import DinoLike
from ordinate.models.vision import VisionShape


class Dinov2WithRegisters(DinoLike):
    """DINOv2 with tokens where it can keep what it wants, which leaves its patches clean.

    Source: Darcet et al. 2024, https://arxiv.org/abs/2309.16588.
    """

    model_type = "dinov2_with_registers"
    prefix = "dinov2_with_registers."
    classifier = "Dinov2WithRegistersForImageClassification"
    plain = "Dinov2WithRegistersModel"
    # smaller tables are means over all cells of the larger
    scheme = "learned_grid:antialias=true"

    def choices(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """And its registers."""
        return super().choices(config) | {"registers": config.get("num_register_tokens", 4)}

    def said(self, shape: VisionShape) -> dict[str, Any]:
        """And its registers."""
        return super().said(shape) | {"num_register_tokens": shape.registers}
