"""Base class of DINOv2, with and without registers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.models.vision import VisionShape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_kind, activation_name
from ordinate.pretrained.vit_like import VitLike


class DinoLike(VitLike):
    """ViT with LayerScale; the classifier reads the class token concatenated with the mean of the patch tokens."""

    defaults: ClassVar[Mapping[str, Any]] = {
        **VitLike.usual,
        "layer_norm_eps": 1e-6,
        "mlp_ratio": 4,
        "layerscale_value": 1.0,
        "use_swiglu_ffn": False,
    }

    def shape(self, config: Mapping[str, Any]) -> VisionShape:
        made = super().shape(config)
        rows, columns = made.patch_grid(*made.image)
        need(
            rows == columns or math.isqrt(rows * columns) ** 2 != rows * columns,
            f"the image_size of a {self.model_type} must not have a square number of patches in a rectangle: "
            "transformers takes its table for that of a square",
            f"got {rows} by {columns} patches",
            "load another checkpoint",
        )
        return made

    def specific_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the LayerScale and feed-forward fields: SwiGLU in the largest models."""
        gated, wide = config["use_swiglu_ffn"], int(config["hidden_size"] * config["mlp_ratio"])
        return {
            "feedforward": "swiglu" if gated else activation_kind(config, "hidden_act"),
            "hidden": _gated(wide) if gated else wide,
            # an initial value: the checkpoint has the trained ones
            "layer_scale": config["layerscale_value"] if config["layerscale_value"] > 0 else 1.0,
            "pool": "both",
        }

    def specific_config(self, shape: VisionShape) -> dict[str, Any]:
        """Return the same fields as config.json keys; mlp_ratio is recovered from the hidden width."""
        gated, hidden, width = shape.feedforward == "swiglu", shape.hidden_width, shape.width
        ratios = [ratio for ratio in range(1, 65) if hidden == (_gated(width * ratio) if gated else width * ratio)]
        rows, columns = shape.patch_grid(*shape.image)
        need(
            rows == columns and shape.layer_scale is not None,
            f"a {self.model_type} has a square grid of patches, and layer_scale",
            f"got image={shape.image} in {rows} by {columns} patches, layer_scale={shape.layer_scale}",
            "use save_pretrained instead",
        )
        need(
            len(ratios) > 0,
            f"a {self.model_type} needs an integer mlp_ratio",
            f"got hidden={hidden} for a width of {width}",
            "use save_pretrained instead",
        )
        return {
            "use_swiglu_ffn": gated,
            "hidden_act": "gelu" if gated else activation_name(shape.feedforward),
            "mlp_ratio": ratios[0],
            "layerscale_value": shape.layer_scale,
        }

    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[TensorRule]:
        gated = shape.feedforward == "swiglu"
        widen, narrow = ("weights_in", "weights_out") if gated else ("fc1", "fc2")
        return [
            *linear_rules(f"{here}.mixer_norm", f"{there}.norm1", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.norm2", bias=True),
            TensorRule(f"{here}.mixer_scale.weight", (f"{there}.layer_scale1.lambda1",)),
            TensorRule(f"{here}.feedforward_scale.weight", (f"{there}.layer_scale2.lambda1",)),
            *linear_rules(f"{here}.feedforward.widen", f"{there}.mlp.{widen}", bias=True),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.{narrow}", bias=True),
        ]


def _gated(hidden: int) -> int:
    """Return the hidden width of SwiGLU: two thirds of `hidden`, rounded up to a multiple of eight."""
    return (int(hidden * 2 / 3) + 7) // 8 * 8
