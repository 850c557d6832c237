"""DINOv2 with registers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.models.vision import VisionShape
from ordinate.pretrained.dino_like import DinoLike


class Dinov2WithRegisters(DinoLike):
    """DINOv2 with register tokens, which prevent high-norm artefacts in the patch tokens.

    Source: Darcet et al. 2024, https://arxiv.org/abs/2309.16588.
    """

    model_type = "dinov2_with_registers"
    prefix = "dinov2_with_registers."
    defaults: ClassVar[Mapping[str, Any]] = {**DinoLike.defaults, "patch_size": 16, "num_register_tokens": 4}
    classifier_class = "Dinov2WithRegistersForImageClassification"
    base_class = "Dinov2WithRegistersModel"
    has_registers = True
    # position tables are downsampled with antialiasing
    scheme = "learned_grid:antialias=true"

    def specific_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return super().specific_fields(config) | {"registers": config["num_register_tokens"]}

    def specific_config(self, shape: VisionShape) -> dict[str, Any]:
        return super().specific_config(shape) | {"num_register_tokens": shape.registers}
