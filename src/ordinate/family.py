"""Published models as ours: how their sizes and tensors are called there and here."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need, need_known
from ordinate.models.decoder import Decoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.feedforward import Kind
from ordinate.models.shape import Shape
from ordinate.models.trunk import Trunk
from ordinate.models.vision import Vision

Weight = Float[Tensor, "..."]
LAYER = "{}"
"""Stands for the number of a layer in the names of tensors."""


@dataclass(frozen=True)
class Rule:
    """One of our tensors and those of a checkpoint that hold the same numbers: here, one as it is.

    Args:
        ours: its name in our model.
        theirs: their names, in order.
    """

    ours: str
    theirs: tuple[str, ...]

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return tensors[0]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        return [tensor]

    def layers(self, count: int) -> "list[Rule]":
        """This rule for each layer, or itself where it names none."""
        if LAYER not in self.ours:
            return [self]
        names = [
            (self.ours.replace(LAYER, str(layer)), tuple(name.replace(LAYER, str(layer)) for name in self.theirs))
            for layer in range(count)
        ]
        return [type(self)(ours, theirs) for ours, theirs in names]


class Transposed(Rule):
    """A matrix that is kept the other way round (GPT-2)."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return tensors[0].mT

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        return [tensor.mT]


class Heads(Rule):
    """Queries, keys and values in three tensors there, below each other here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return torch.cat(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        width = shape.sizes["head_width"]
        kv_heads = shape.heads if shape.kv_heads is None else shape.kv_heads
        return list(tensor.split([shape.heads * width, kv_heads * width, kv_heads * width]))


class Halves(Rule):
    """Two tensors of one size there, below each other here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return torch.cat(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        return list(tensor.chunk(2))


class HeadByHead(Rule):
    """Each head's queries, keys and values together there (GPT-NeoX, Bloom); first all queries here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Ours from theirs."""
        return tensors[0].unflatten(0, (shape.heads, 3, -1)).transpose(0, 1).flatten(0, 2)

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Theirs from ours."""
        return [tensor.unflatten(0, (3, shape.heads, -1)).transpose(0, 1).flatten(0, 2)]


class Family(ABC):
    """Models of one `model_type`: their sizes as a `Shape`, and the names of their tensors.

    Must: `model_type`, `prefix`, `architecture`, `shape`, `config` (which says a shape in their words) and `rules`.
    May: `defaults` (what a config.json may leave out), `complete` (what only the tensors tell) and `aside` (tensors
        in checkpoints that hold no weights).
    """

    kind: ClassVar[type[Trunk] | type[EncoderDecoder] | type[Vision]] = Decoder
    """What it is a family of: decoders, encoders, both in one, or models for images."""
    model_type: ClassVar[str]
    """What its config.json is marked by."""
    prefix: ClassVar[str]
    """What the names of its tensors begin with in a model with a head, and not without one."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """What a config.json may leave out."""
    aside: ClassVar[tuple[str, ...]] = ()
    """How the names of tensors end that hold no weights."""

    def complete(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """What a config.json says, and what only the tensors beside it tell, of which these are the names."""
        return dict(config)

    @abstractmethod
    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes and choices in a config.json.

        Raises:
            ValueError: something that this family has and our model does not.
        """

    @abstractmethod
    def architecture(self, shape: Shape) -> str:
        """The class of transformers that reads a model of this shape."""

    @abstractmethod
    def config(self, shape: Shape) -> dict[str, Any]:
        """What a config.json says of a model of this shape."""

    @abstractmethod
    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How its tensors are called there and here; `LAYER` stands for the number of a layer."""

    def all_rules(self, shape: Shape) -> list[Rule]:
        """The rules of every layer."""
        return [rule for each in self.rules(shape) for rule in each.layers(shape.layers)]


def linear(ours: str, *theirs: str, kind: type[Rule] = Rule, bias: bool) -> list[Rule]:
    """The rules of a matrix and of the numbers added after it."""
    weight = kind(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs))
    # what is kept the other way round has one way only as a row
    rows = Rule if kind is Transposed else kind
    return [weight, rows(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs))] if bias else [weight]


def need_settings(family: Family, config: Mapping[str, Any], **settings: Any) -> None:
    """Raise unless these settings of a config.json, where it has them, are what our model does."""
    for name, wanted in settings.items():
        came = config.get(name, wanted)
        need(
            came == wanted,
            f"our {family.model_type} is one with {name}={wanted!r}",
            f"got {came!r}",
            "load a checkpoint without it",
        )


def need_activation(name: str, known: Mapping[str, Kind]) -> Kind:
    """Our feed-forward for an activation of transformers."""
    need_known("activation", name, known)
    return known[name]


ACTIVATIONS: Mapping[str, Kind] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""What transformers calls a way to bend numbers, and what we do."""


def activation_of(kind: Kind) -> str:
    """What transformers calls our way to bend numbers."""
    return {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}[kind]
