"""DINOv3."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape
from ordinate.pretrained._family import StackedPair, StackedQKV, TensorRule, Weight, linear_rules
from ordinate.pretrained.activation_names import HF_GATES, activation_kind, activation_name
from ordinate.pretrained.vit_like import (
    BIASED,
    PLAIN,
    ClassAndRegisterTokens,
    FlattenedKernel,
    VisionFamily,
    image_sizes,
)

PARTS = ("query", "key", "value")
# biases of queries, keys and values or not, and of the output or not
MIXERS = {
    (True, True): BIASED,
    (True, False): "softmax:variant.bias=true,variant.out_bias=false",
    (False, True): PLAIN,
    (False, False): "softmax",
}
SPACING = "spacing=centres"


@dataclass(frozen=True)
class PartialQKV(StackedQKV):
    """Query, key and value tensors of which a checkpoint lacks some, which are zeros here.

    Args:
        present: whether the checkpoint has that of queries, of keys, of values.
    """

    incomplete = True
    present: tuple[bool, ...] = (True, True, True)

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        given = iter(tensors)
        zeros = tensors[0].new_zeros(shape.width)
        return super().read([next(given) if there else zeros for there in self.present], shape)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [part for part, there in zip(super().write(tensor, shape), self.present, strict=True) if there]


class Dinov3Vit(VisionFamily):
    """DINOv3: a ViT trained by self-supervised learning, with 2D RoPE of the patches by their normalised centres.

    Class token and registers are not rotated.

    Source: Siméoni et al. 2025, DINOv3, https://arxiv.org/abs/2508.10104.
    Departs: coordinates are not shifted, jittered or rescaled at random in training. Where the keys have no bias, it
        is read as zeros, trained, and saved.
    """

    model_type = "dinov3_vit"
    prefix = ""
    # replaced where the sizes are known
    scheme = "none"
    base_class = "DINOv3ViTModel"
    ignored_suffixes = ("mask_token",)
    renamed: ClassVar[Mapping[str, str]] = {"layer.": "model.layer."}
    defaults: ClassVar[Mapping[str, Any]] = {
        **VisionFamily.usual,
        "hidden_size": 384,
        "num_attention_heads": 6,
        "intermediate_size": 1536,
        "layer_norm_eps": 1e-5,
        "patch_size": 16,
        "rope_theta": 100.0,
        **{f"{part}_bias": part != "key" for part in PARTS},
        "proj_bias": True,
        "mlp_bias": True,
        "layerscale_value": 1.0,
        "use_gated_mlp": False,
        "num_register_tokens": 0,
    }

    def specific_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        must = f"the head width of a {self.model_type} must be a multiple of 4: pairs of channels for two axes"
        need(width % (4 * heads) == 0, must, f"got {width} / {heads}", "load another checkpoint")
        gated = config["use_gated_mlp"]
        biased = any(config[f"{part}_bias"] for part in PARTS)
        return {
            "head_width": None,
            "mixer": MIXERS[biased, bool(config["proj_bias"])],
            "bias": ("norm", "feedforward", "head") if config["mlp_bias"] else ("norm", "head"),
            "feedforward": activation_kind(config, "hidden_act", HF_GATES if gated else None),
            "hidden": config["intermediate_size"],
            "layer_scale": config["layerscale_value"] if config["layerscale_value"] > 0 else 1.0,
            "registers": config["num_register_tokens"],
            "class_position": False,
            "lead_position": "centre",
        }

    def shape(self, config: Mapping[str, Any]) -> VisionShape:
        theta, made = config["rope_theta"], super().shape(config)
        remedy = "correct it, or download the file again"
        known = isinstance(theta, int | float) and theta > 0
        need(known, "rope_theta must be a number above zero", f"got {shown(theta)}", remedy)
        return replace(made, scheme=_scheme(made, float(theta)))

    def config(self, shape: Shape) -> dict[str, Any]:
        must = f"a {self.model_type} must be a vision model with layer_scale and the scheme axial:{SPACING}"
        theta = _theta(shape)
        came = f"got {type(shape).__name__}, {shape.scheme_spec}, {shape.mixer_spec}, layer_scale={shape.layer_scale}"
        known = shape.mixer_spec in MIXERS.values() and shape.layer_scale is not None
        need(theta is not None and known, must, came, "use save_pretrained instead")
        vision = cast(VisionShape, shape)
        biased, proj = next(places for places, mixer in MIXERS.items() if mixer == vision.mixer_spec)
        gated = vision.feedforward in HF_GATES.values()
        return {
            "hidden_size": vision.width,
            "num_hidden_layers": vision.layers,
            "num_attention_heads": vision.heads,
            "intermediate_size": vision.hidden_width,
            "hidden_act": activation_name(vision.feedforward, HF_GATES if gated else None),
            "use_gated_mlp": gated,
            "layer_norm_eps": vision.norm_eps,
            "layerscale_value": vision.layer_scale,
            "rope_theta": theta,
            **{f"{part}_bias": biased for part in PARTS},
            "proj_bias": proj,
            "mlp_bias": "feedforward" in vision.bias,
            "num_register_tokens": vision.registers,
            **image_sizes(vision),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        vision, there, here = cast(VisionShape, shape), "layer.{}", "blocks.{}"
        biased, proj = next(places for places, mixer in MIXERS.items() if mixer == vision.mixer_spec)
        present = tuple(biased and bool(self.settings.get(f"{part}_bias", True)) for part in PARTS)
        parts = [f"{there}.attention.{part}_proj" for part in "qkv"]
        biases = tuple(f"{part}.bias" for part, has in zip(parts, present, strict=True) if has)
        gated, inner = vision.feedforward in HF_GATES.values(), "feedforward" in vision.bias
        widen = [f"{there}.mlp.{part}_proj" for part in (("gate", "up") if gated else ("up",))]
        return [
            FlattenedKernel("patches.weight", ("embeddings.patch_embeddings.weight",)),
            TensorRule("patches.bias", ("embeddings.patch_embeddings.bias",)),
            ClassAndRegisterTokens("lead.weight", ("embeddings.cls_token", "embeddings.register_tokens")),
            *linear_rules("norm", "norm", bias=True),
            *linear_rules(f"{here}.mixer_norm", f"{there}.norm1", bias=True),
            *linear_rules(f"{here}.feedforward_norm", f"{there}.norm2", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=False),
            *_bias_rules(f"{here}.mixer.project.bias", biases, present),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.o_proj", bias=proj),
            *linear_rules(f"{here}.feedforward.widen", *widen, kind=StackedPair if gated else TensorRule, bias=inner),
            *linear_rules(f"{here}.feedforward.narrow", f"{there}.mlp.down_proj", bias=inner),
            TensorRule(f"{here}.mixer_scale.weight", (f"{there}.layer_scale1.lambda1",)),
            TensorRule(f"{here}.feedforward_scale.weight", (f"{there}.layer_scale2.lambda1",)),
        ]


def _bias_rules(ours: str, theirs: tuple[str, ...], present: tuple[bool, ...]) -> list[TensorRule]:
    """Return the mapping of the bias of queries, keys and values, of which a checkpoint has those of these names."""
    if not theirs:
        return []
    return [StackedQKV(ours, theirs) if all(present) else PartialQKV(ours, theirs, present)]


def _scheme(shape: VisionShape, theta: float) -> str:
    """Return the scheme of a vision model of this shape: its `scheme`."""
    sides = ";".join(map(str, shape.patch_grid(*shape.image)))
    return f"axial:{SPACING},theta={theta},grid_size={sides}"


def _theta(shape: Shape) -> float | None:
    """Return the base of the wavelengths of a vision model with the scheme of DINOv3; None: it has another."""
    if not isinstance(shape, VisionShape) or len(shape.scheme_spec.entries) > 1:
        return None
    _, options = catalog.parse(shape.scheme_spec.entries[0])
    theta = float(options.get("theta", 0))
    return theta if shape.scheme_spec == _scheme(shape, theta) else None
