"""What ViT and the models built like it have in common."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch

from ordinate.checks import need
from ordinate.family import Family, Heads, Rule, Weight, linear
from ordinate.models.shape import Shape
from ordinate.models.vision import Vision, VisionShape

# the numbers added after queries, keys and values, or after the output alone
BIASED, PLAIN = "softmax:variant.bias=true", "softmax:variant.out_bias=true"


class Flat(Rule):
    """A kernel that sees one patch at a time: a matrix for its pixels in a row."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return tensors[0].flatten(1)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        seen = cast(VisionShape, shape)
        return [tensor.unflatten(1, (seen.channels, *seen.patch))]


class Leading(Rule):
    """The class token and the registers, below each other here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return torch.cat([tensor[0] for tensor in tensors])

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        return [part[None] for part in tensor.split([1, len(tensor) - 1] if len(self.theirs) > 1 else 1)]


class Cells(Rule):
    """The vectors of the cells, in one table there with that of the class token."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        seen = cast(VisionShape, shape)
        return tensors[0][0, 1:].unflatten(0, seen.cells(*seen.image))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours, 0 where the class token has its own."""
        cells = tensor.flatten(0, 1)
        return [torch.cat([torch.zeros_like(cells[:1]), cells])[None]]


class ClassRow(Rule):
    """The vector that marks the class token, in one table there with those of the cells."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return tensors[0][0, :1]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours, 0 where the cells have theirs."""
        seen = cast(VisionShape, shape)
        rows, columns = seen.cells(*seen.image)
        return [torch.cat([tensor, tensor.new_zeros(rows * columns, tensor.shape[1])])[None]]


class VitLike(Family):
    """A trained vector for each cell of the grid and for the class token, layer norms before each branch.

    Must: what a family must, `shape`, `config` and the rules outside of the layers being here; `classifier`, `plain`,
        `choices`, `said` and `layer_rules`.
    May: `scheme`.
    """

    kind = Vision
    # stands for hidden patches in training
    aside = ("mask_token",)
    classifier: ClassVar[str]
    """The class of transformers with a head."""
    plain: ClassVar[str]
    """The class of transformers without one."""
    scheme: ClassVar[str] = "learned_grid"
    """How the grid is told."""

    @abstractmethod
    def choices(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What a config.json says that not all of them have, as fields of a shape."""

    @abstractmethod
    def said(self, shape: VisionShape) -> dict[str, Any]:
        """The same in its words."""

    @abstractmethod
    def layer_rules(self, shape: VisionShape, there: str, here: str) -> Sequence[Rule]:
        """How the tensors of norms and feed-forward of a layer are called."""

    def architecture(self, shape: Shape) -> str:
        """A model with a head, or without one."""
        return self.classifier if cast(VisionShape, shape).top == "classes" else self.plain

    def shape(self, config: Mapping[str, Any]) -> VisionShape:
        """The sizes in a config.json."""
        names = config["id2label"]
        labels = tuple(names[str(place)] for place in range(len(names)))
        given: dict[str, Any] = {
            "vocabulary": len(labels),
            "width": config["hidden_size"],
            "layers": config["num_hidden_layers"],
            "heads": config["num_attention_heads"],
            "scheme": self.scheme,
            "mixer": BIASED if config["qkv_bias"] else PLAIN,
            "norm": "layer",
            "epsilon": config["layer_norm_eps"],
            "bias": ("norm", "feedforward", "head"),
            "image": _pair(config["image_size"]),
            "patch": _pair(config["patch_size"]),
            "channels": config["num_channels"],
            "class_position": True,
            "labels": () if labels == _numbered(len(labels)) else labels,
        }
        return VisionShape(**given | self.choices(config))

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        need(
            isinstance(shape, VisionShape) and shape.scheme == self.scheme and shape.mixer in (BIASED, PLAIN),
            f"a {self.model_type} is a model for images with {self.scheme} and {BIASED} or {PLAIN}",
            f"got {type(shape).__name__}, {shape.scheme}, {shape.mixer}",
            "save it as our own",
        )
        seen = cast(VisionShape, shape)
        labels = seen.labels or _numbered(seen.vocabulary)
        return {
            "architectures": [self.architecture(seen)],
            "hidden_size": seen.width,
            "num_hidden_layers": seen.layers,
            "num_attention_heads": seen.heads,
            "qkv_bias": seen.mixer == BIASED,
            "layer_norm_eps": seen.epsilon,
            "image_size": seen.image[0] if len(set(seen.image)) == 1 else list(seen.image),
            "patch_size": seen.patch[0] if len(set(seen.patch)) == 1 else list(seen.patch),
            "num_channels": seen.channels,
            "id2label": {str(place): label for place, label in enumerate(labels)},
            "label2id": {label: place for place, label in enumerate(labels)},
            **self.said(seen),
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        seen, there, here = cast(VisionShape, shape), f"{self.prefix}encoder.layer.{{}}", "blocks.{}"
        table, patches = f"{self.prefix}embeddings", f"{self.prefix}embeddings.patch_embeddings.projection"
        parts = [f"{there}.attention.attention.{part}" for part in ("query", "key", "value")]
        lead = (f"{table}.cls_token", *([f"{table}.register_tokens"] if seen.registers else []))
        rules = [
            Flat("patches.weight", (f"{patches}.weight",)),
            Rule("patches.bias", (f"{patches}.bias",)),
            Leading("lead.weight", lead),
            Cells("schemes.0.table", (f"{table}.position_embeddings",)),
            ClassRow("class_position.weight", (f"{table}.position_embeddings",)),
            *linear("norm", f"{self.prefix}layernorm", bias=True),
            *linear(f"{here}.mixer.project", *parts, kind=Heads, bias=seen.mixer == BIASED),
            *linear(f"{here}.mixer.out", f"{there}.attention.output.dense", bias=True),
            *self.layer_rules(seen, there, here),
        ]
        return rules + (linear("head", "classifier", bias=True) if seen.top == "classes" else [])


def _pair(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def _numbered(count: int) -> tuple[str, ...]:
    """What transformers calls classes without names."""
    return tuple(f"LABEL_{place}" for place in range(count))
