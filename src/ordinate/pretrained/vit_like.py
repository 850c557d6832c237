"""Base classes of vision models, and of those that are like ViT."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.pretrained._family import Family, StackedQKV, TensorRule, Weight, linear_rules
from ordinate.pretrained.class_labels import class_labels, label_settings, numbered_labels

# with and without a bias of the QKV projection; the output projection always has one
BIASED, PLAIN = "softmax:variant.bias=true", "softmax:variant.out_bias=true"


class FlattenedKernel(TensorRule):
    """Patch embedding: a convolution kernel in the checkpoint, a matrix over flattened pixels here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0].flatten(1)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        vision = cast(VisionShape, shape)
        return [tensor.unflatten(1, (vision.channels, *vision.patch))]


class ClassAndRegisterTokens(TensorRule):
    """Class token and register tokens: separate in the checkpoint, rows of one table here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.cat([tensor[0] for tensor in tensors])

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [part[None] for part in tensor.split([1, len(tensor) - 1] if len(self.theirs) > 1 else 1)]


class PatchPositions(TensorRule):
    """Position embeddings of the patches; the checkpoint's table also holds the class token's in row 0."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        vision = cast(VisionShape, shape)
        return tensors[0][0, 1:].unflatten(0, vision.patch_grid(*vision.image))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Return the full table with 0 in the class token's row; `ClassTokenPosition` adds it."""
        cells = tensor.flatten(0, 1)
        return [torch.cat([torch.zeros_like(cells[:1]), cells])[None]]


class ClassTokenPosition(TensorRule):
    """Position embedding of the class token: row 0 of the checkpoint's table."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][0, :1]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Return the full table with 0 in the patches' rows; `PatchPositions` adds them."""
        vision = cast(VisionShape, shape)
        rows, columns = vision.patch_grid(*vision.image)
        return [torch.cat([tensor, tensor.new_zeros(rows * columns, tensor.shape[1])])[None]]


class VisionFamily(Family):
    """Vision models: patches with class token, LayerNorm before each part of a layer.

    Must: `model_type`, `prefix`, `defaults`, `base_class`, `specific_fields`, `config` and `rules`.
    May: `classifier_class` and `scheme`.
    """

    model_class = VisionTransformer
    usual: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "head_dim": None,
        "hidden_act": "gelu",
        "qkv_bias": True,
        "image_size": 224,
        "num_channels": 3,
        "id2label": None,
        "architectures": (),
    }
    """Default values that these families share."""
    classifier_class: ClassVar[str] = ""
    """The transformers class with a classification head; "": there is none."""
    base_class: ClassVar[str]
    """The transformers class without a head."""
    scheme: ClassVar[str] = "learned_grid"
    """The position scheme."""

    @abstractmethod
    def specific_fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `VisionShape` fields that differ between families."""

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Decide on the head by the class that config.json names, or by the tensors if it names none."""
        named = config["architectures"] or ()
        classes = self.classifier_class in named or (not named and "classifier.weight" in names)
        return {**config, "head": "classes" if classes and self.classifier_class else "none"}

    def architecture(self, shape: Shape) -> str:
        return self.classifier_class if cast(VisionShape, shape).head == "classes" else self.base_class

    def shape(self, config: Mapping[str, Any]) -> VisionShape:
        width, heads = config["hidden_size"], config["num_attention_heads"]
        size = width // heads if config["head_dim"] is None else config["head_dim"]
        labels = class_labels(config)
        given: dict[str, Any] = {
            "vocabulary": len(labels),
            "width": width,
            "layers": config["num_hidden_layers"],
            "heads": heads,
            "head_width": None if size * heads == width else size,
            "scheme": self.scheme,
            "mixer": BIASED if config["qkv_bias"] else PLAIN,
            "norm": "layer",
            "norm_eps": config["layer_norm_eps"],
            "bias": ("norm", "feedforward", "head"),
            "image": _pair(config["image_size"]),
            "patch": _pair(config["patch_size"]),
            "channels": config["num_channels"],
            "class_position": True,
            "head": config["head"],
            "labels": () if labels == numbered_labels(len(labels)) else labels,
        }
        return VisionShape(**given | self.specific_fields(config))


class VitLike(VisionFamily):
    """ViT-like models: learned position embeddings of patches and class token.

    Must: `model_type`, `prefix`, `defaults`, `classifier_class`, `base_class`, `specific_fields`, `specific_config`
        and `layer_rules`.
    May: `scheme` and `has_registers`.
    """

    # the mask token of masked-image pre-training, and a pooler beside a classifier
    ignored_suffixes = ("mask_token", "pooler.dense.weight", "pooler.dense.bias")
    has_registers: ClassVar[bool] = False
    """Whether checkpoints have a tensor of register tokens, even of none."""

    @abstractmethod
    def specific_config(self, shape: VisionShape) -> dict[str, Any]:
        """Return the config.json keys of the fields of `specific_fields`."""

    @abstractmethod
    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of norms, LayerScale and feed-forward of a layer."""

    def config(self, shape: Shape) -> dict[str, Any]:
        need(
            isinstance(shape, VisionShape)
            and shape.scheme_spec == self.scheme
            and shape.mixer_spec in (BIASED, PLAIN),
            f"a {self.model_type} must be a vision model with scheme {self.scheme} and mixer {BIASED} or {PLAIN}",
            f"got {type(shape).__name__}, {shape.scheme_spec}, {shape.mixer_spec}",
            "use save_pretrained instead",
        )
        vision = cast(VisionShape, shape)
        labels = vision.labels or numbered_labels(vision.vocabulary)
        return {
            "architectures": [self.architecture(vision)],
            "hidden_size": vision.width,
            "num_hidden_layers": vision.layers,
            "num_attention_heads": vision.heads,
            **({} if vision.head_width is None else {"head_dim": vision.head_width}),
            "qkv_bias": vision.mixer_spec == BIASED,
            "layer_norm_eps": vision.norm_eps,
            **image_sizes(vision),
            **label_settings(labels),
            **self.specific_config(vision),
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        vision, there, here = cast(VisionShape, shape), f"{self.prefix}encoder.layer.{{}}", "blocks.{}"
        table, patches = f"{self.prefix}embeddings", f"{self.prefix}embeddings.patch_embeddings.projection"
        parts = [f"{there}.attention.attention.{part}" for part in ("query", "key", "value")]
        lead = (f"{table}.cls_token", *([f"{table}.register_tokens"] if self.has_registers else []))
        rules = [
            FlattenedKernel("patches.weight", (f"{patches}.weight",)),
            TensorRule("patches.bias", (f"{patches}.bias",)),
            ClassAndRegisterTokens("lead.weight", lead),
            PatchPositions("schemes.0.table", (f"{table}.position_embeddings",)),
            ClassTokenPosition("class_position.weight", (f"{table}.position_embeddings",)),
            *linear_rules("norm", f"{self.prefix}layernorm", bias=True),
            *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=vision.mixer_spec == BIASED),
            *linear_rules(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *self.layer_rules(vision, there, here),
        ]
        return rules + (linear_rules("head", "classifier", bias=True) if vision.head == "classes" else [])


def image_sizes(shape: VisionShape) -> dict[str, Any]:
    """Return the config.json keys of the sizes of images and patches."""
    sizes = {"image_size": shape.image, "patch_size": shape.patch}
    one = {key: size[0] if size[0] == size[1] else list(size) for key, size in sizes.items()}
    return {**one, "num_channels": shape.channels}


def _pair(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return height, width
