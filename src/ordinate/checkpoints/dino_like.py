"""What DINOv2 with and without registers have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.checkpoints.vit_like import VitLike
from ordinate.checks import need
from ordinate.family import ACTIVATIONS, Rule, activation_of, linear, need_activation
from ordinate.models.vision import VisionShape


class DinoLike(VitLike):
    """ViT with scaled branches, which classifies by the class token beside the mean of the patches."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "qkv_bias": True,
        "num_channels": 3,
        "mlp_ratio": 4,
        "layerscale_value": 1.0,
        "use_swiglu_ffn": False,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "architectures": (),
    }

    def choices(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Scaled branches, and a gate in the largest models."""
        gated, wide = config["use_swiglu_ffn"], int(config["hidden_size"] * config["mlp_ratio"])
        return {
            "feedforward": "swiglu" if gated else need_activation(config["hidden_act"], ACTIVATIONS),
            "hidden": _gated(wide) if gated else wide,
            "layer_scale": config["layerscale_value"],
            "pool": "both",
            "top": "classes" if self.classifier in config["architectures"] else "none",
        }

    def said(self, shape: VisionShape) -> dict[str, Any]:
        """The same in its words."""
        gated, hidden, width = shape.feedforward == "swiglu", shape.hidden_width, shape.width
        ratios = [ratio for ratio in range(1, 65) if hidden == (_gated(width * ratio) if gated else width * ratio)]
        need(
            len(ratios) > 0,
            f"a {self.model_type} has a whole mlp_ratio",
            f"got hidden={hidden} for a width of {width}",
            "save it as our own",
        )
        return {
            "use_swiglu_ffn": gated,
            "hidden_act": "gelu" if gated else activation_of(shape.feedforward),
            "mlp_ratio": ratios[0],
            "layerscale_value": shape.layer_scale,
        }

    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[Rule]:
        """How the tensors of norms, scales and feed-forward are called."""
        gated = shape.feedforward == "swiglu"
        widen, narrow = ("weights_in", "weights_out") if gated else ("fc1", "fc2")
        return [
            *linear(f"{here}.mixer_norm", f"{there}.norm1", bias=True),
            *linear(f"{here}.feedforward_norm", f"{there}.norm2", bias=True),
            Rule(f"{here}.mixer_scale.weight", (f"{there}.layer_scale1.lambda1",)),
            Rule(f"{here}.feedforward_scale.weight", (f"{there}.layer_scale2.lambda1",)),
            *linear(f"{here}.feedforward.widen", f"{there}.mlp.{widen}", bias=True),
            *linear(f"{here}.feedforward.narrow", f"{there}.mlp.{narrow}", bias=True),
        ]


def _gated(hidden: int) -> int:
    """Columns of each half with a gate: two thirds, made a multiple of eight."""
    return (int(hidden * 2 / 3) + 7) // 8 * 8
