"""The contract of model families: mapping published checkpoints (config.json, tensor names) to Ordinate models."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.checks import need, shown
from ordinate.models.backbone import Backbone
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionTransformer
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.config_types import check_types

Weight = Float[Tensor, "..."]
LAYER_PLACEHOLDER = "{}"
"""Placeholder for the layer index in tensor names."""
HEADS = ("head.weight", "masked.decoder.weight")
"""Names of heads in Ordinate models whose token table is not tied to them."""
CAUSAL: Mapping[type, bool] = {Decoder: True, Encoder: False, VisionTransformer: False}
"""The masks of these classes, as `is_causal` of config.json; an encoder-decoder, which has both, must not have it."""


REMEDY = "correct config.json, or download it again"
PER_LAYER = "per_layer_config"
"""The key of sizes of single layers, of any family in transformers."""


@dataclass(frozen=True)
class TensorRule:
    """Mapping between one Ordinate tensor and one or more checkpoint tensors; the base class copies one unchanged.

    Args:
        ours: state-dict name in the Ordinate model.
        theirs: names in the checkpoint, in order.
    """

    adds: ClassVar[bool] = False
    """Whether the Ordinate tensor is a sum of those of the checkpoint, so that its gradient is that of the first."""
    incomplete: ClassVar[bool] = False
    """Whether the checkpoint lacks a part of the Ordinate tensor, which has no gradient in transformers then."""

    ours: str
    theirs: tuple[str, ...]

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        """Convert checkpoint tensors to the Ordinate tensor."""
        return tensors[0]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        """Convert the Ordinate tensor to checkpoint tensors."""
        return [tensor]

    def stored_shapes(self, tensor: Weight, came: Sequence[tuple[int, ...]], shape: Shape) -> list[tuple[int, ...]]:
        """Return the shapes that the checkpoint tensors must have for this Ordinate tensor.

        Args:
            tensor: the Ordinate tensor, of which only the shape counts.
            came: the shapes that they have.
            shape: hyperparameters.
        """
        return [tuple(part.shape) for part in self.write(tensor, shape)]

    def layers(self, count: int) -> "list[TensorRule]":
        """Expand the layer placeholder: one rule for each layer, or the rule itself if it has none."""
        if LAYER_PLACEHOLDER not in self.ours:
            return [self]
        names = [
            (
                self.ours.replace(LAYER_PLACEHOLDER, str(layer)),
                tuple(name.replace(LAYER_PLACEHOLDER, str(layer)) for name in self.theirs),
            )
            for layer in range(count)
        ]
        return [replace(self, ours=ours, theirs=theirs) for ours, theirs in names]


class TransposedWeight(TensorRule):
    """A weight matrix stored transposed in the checkpoint (GPT-2's Conv1D)."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0].mT

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor.mT]


class StackedQKV(TensorRule):
    """Separate query, key and value tensors in the checkpoint, concatenated along dim 0 here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.cat(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        width = shape.bindable_sizes["head_width"]
        kv_heads = shape.heads if shape.kv_heads is None else shape.kv_heads
        return list(tensor.split([shape.heads * width, kv_heads * width, kv_heads * width]))


class StackedPair(TensorRule):
    """Two equally large tensors in the checkpoint (gate and up projection), concatenated along dim 0 here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return torch.cat(list(tensors))

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return list(tensor.chunk(2))


class FirstOf(TensorRule):
    """A tensor that the checkpoint has under several names, of which the first counts."""

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        # a file has no two names for the same memory
        return [tensor.clone() for _ in self.theirs]


class GroupedQKV(TensorRule):
    """Fused QKV by key head in the checkpoint, its queries, its key, its value; queries, then keys, then values here.

    GPT-NeoX and Bloom have a key head for each query head; Falcon has one, a few, or as many.
    """

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        heads, groups = shape.heads, shape.heads if shape.kv_heads is None else shape.kv_heads
        rows = tensors[0].unflatten(0, (groups, heads // groups + 2, -1))
        return torch.cat([rows[:, :-2].flatten(0, 2), rows[:, -2].flatten(0, 1), rows[:, -1].flatten(0, 1)])

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        heads, groups = shape.heads, shape.heads if shape.kv_heads is None else shape.kv_heads
        q, k, v = tensor.unflatten(0, (heads + 2 * groups, -1)).split([heads, groups, groups])
        rows = torch.cat([q.unflatten(0, (groups, -1)), k[:, None], v[:, None]], 1)
        return [rows.flatten(0, 2)]


class Family(ABC):
    """A model family, identified by its `model_type`: converts config.json to a `Shape` and maps tensor names.

    Must: `model_type`, `prefix`, `architecture`, `defaults`, `shape`, `config` (the inverse of `shape`) and `rules`.
    May: `aliases` with `fallback_aliases` (other names of keys), `complete_config` (settings that follow from others
        or from the tensor names), `refined` (those that follow from the numbers of tensors), `ignored_suffixes`,
        `ignored` or `ignores` (checkpoint tensors to ignore), `renamed` (other names of tensors), `wide` (tensors
        that stay in 32 bits), `copies` (tensors that are tied to the token table), `computed` (tensors that follow
        from the shape), `null_is_false`, `null_is_missing`, `optional_sizes` with `used_sizes` (sizes that not every
        model has), `reference_attention` and `read_as` (another family for some settings).

    A key that `shape` reads has the default and the aliases that it has in transformers; one that changes the numbers
    there and is not implemented here is refused by `need_settings`. Any other key has no effect.
    """

    model_class: ClassVar[type[Backbone] | type[EncoderDecoder] | type[VisionTransformer]] = Decoder
    """The Ordinate model class: decoder, encoder, encoder-decoder or vision model."""
    base_class: ClassVar[str] = ""
    """The transformers class without a head; "": checkpoints of it are not recognised."""
    model_type: ClassVar[str]
    """The `model_type` of its config.json."""
    prefix: ClassVar[str]
    """Prefix of tensor names in checkpoints with a head; absent in checkpoints of the bare model."""
    defaults: ClassVar[Mapping[str, Any]]
    """Default values of keys that config.json may omit, as in transformers."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of keys, as in transformers (`attribute_map`). They take precedence over the keys, as there."""
    fallback_aliases: ClassVar[frozenset[str]] = frozenset()
    """Those of `aliases` that are read only where the key itself is missing."""
    ignored_suffixes: ClassVar[tuple[str, ...]] = ()
    """Suffixes of checkpoint tensors that are ignored: buffers, tied or unused heads."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Parts of names of tensors, with those that transformers reads in their place too."""
    wide: ClassVar[tuple[str, ...]] = ()
    """Ends of the names of our tensors that are not read in 16 bits when the others are, as in transformers."""
    optional_sizes: ClassVar[frozenset[str]] = frozenset()
    """Keys of sizes that only some models of the family have; those of others may say anything."""
    null_is_false: ClassVar[frozenset[str]] = frozenset()
    """Keys whose null is false, as in transformers."""
    null_is_missing: ClassVar[frozenset[str]] = frozenset()
    """Keys whose null is their default, as in transformers."""
    reference_attention: ClassVar[str] = "eager"
    """The attention implementation of transformers with which `verify` compares."""
    settings: Mapping[str, Any] = {}
    """The settings of the checkpoint that `read_config` read last; `rules` may depend on them."""
    warning: str = ""
    """What a user must know of the checkpoint that `read_config` read last; "": nothing."""
    source: str = "config.json"
    """Where they are from, for messages about sizes: config.json, and the defaults of sizes that it lacks."""

    @classmethod
    def read_as(cls, config: Mapping[str, Any]) -> str:
        """Return the name of the family that reads a config.json with this `model_type`, as transformers would."""
        return cls.model_type

    def read_config(self, given: Mapping[str, Any], names: Collection[str]) -> Shape:
        """Convert a config.json to a `Shape` and keep its settings, with defaults and aliases as in transformers.

        Args:
            given: config.json.
            names: names of the tensors of the checkpoint.

        Raises:
            ValueError: a feature of the family that the Ordinate model does not implement.
        """
        given = {
            name: False if value is None and name in self.null_is_false else value
            for name, value in given.items()
            if value is not None or name not in self.null_is_missing
        }
        layered = {} if PER_LAYER in self.defaults else {PER_LAYER: None}
        need_settings(self, given, **layered, is_causal=CAUSAL.get(self.model_class))
        _need_whole_cache(self, given)
        own = {name: value for name, value in given.items() if name not in self.aliases}
        # an alias takes precedence, and settings that follow from others follow from those under their own names
        told = {
            self.aliases[name]: value
            for name, value in given.items()
            if name in self.aliases and not (name in self.fallback_aliases and self.aliases[name] in own)
        }
        check_types({**own, **told}, self.defaults)
        lacking = [
            name for name, value in self.defaults.items() if type(value) is int and name not in {**own, **told}
        ]
        if lacking:
            self.source = f"config.json and the defaults for {', '.join(lacking)}, which it lacks"
        self.settings = CheckpointConfig({**self.complete_config({**self.defaults, **own}, names), **told})
        _need_types(self.settings)
        try:
            return self.shape(self.settings)
        except ZeroDivisionError:
            # the width of a head, rounded down
            raise ValueError(f"a head must have a channel or more; it has none; {REMEDY}") from None

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return the config completed with settings that follow from others or from the tensor names."""
        return dict(config)

    def write_config(self, shape: Shape) -> dict[str, Any]:
        """Convert a `Shape` to the contents of config.json, with the name of the transformers class.

        Raises:
            ValueError: the family does not have such models.
        """
        return {"architectures": [self.architecture(shape)], **self.config(shape)}

    @abstractmethod
    def shape(self, config: Mapping[str, Any]) -> Shape:
        """Convert the settings of a checkpoint, defaults included, to a `Shape`.

        Raises:
            ValueError: a feature of the family that the Ordinate model does not implement.
        """

    @abstractmethod
    def architecture(self, shape: Shape) -> str:
        """Return the transformers class for a model of this shape."""

    @abstractmethod
    def config(self, shape: Shape) -> dict[str, Any]:
        """Convert a `Shape` to the contents of config.json."""

    @abstractmethod
    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        """Return the tensor mappings; names contain `LAYER_PLACEHOLDER` in place of the layer index."""

    def position_ids(self, positions: Int[Tensor, "b n"], shape: Shape) -> Int[Tensor, "b n"]:
        """Return the `position_ids` of transformers for positions that count from 0."""
        return positions

    def ignored(self, shape: Shape) -> tuple[str, ...]:
        """Return suffixes of checkpoint tensors that are ignored unless a rule reads them."""
        return self.ignored_suffixes

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint that no rule reads is ignored."""
        return name.endswith(self.ignored(shape) or ("\0",))

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        """Return the shape, completed with what follows from the numbers of the tensors and not from their names."""
        return shape

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        """Return those of `optional_sizes` that a model of this shape has."""
        return self.optional_sizes

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        """Return a tensor's name in a checkpoint with these names: without the prefix in those of the bare model."""
        found = [theirs]
        for part, other in self.renamed.items():
            found += [name.replace(part, other) for name in found if part in name]
        known = [name for each in found for name in (each, each.removeprefix(self.prefix))]
        return next((name for name in known if name in names), theirs.removeprefix(self.prefix))

    def computed(self, shape: Shape) -> Mapping[str, Tensor]:
        """Return the tensors of a checkpoint that follow from the shape: they are written, and no rule reads them."""
        return {}

    def untied_rules(self, shape: Shape) -> list[TensorRule]:
        """Return the tensor mappings that a model with a tied head would have without ties; none for other models."""
        tied = shape.tie_embeddings and shape.head in ("next_token", "masked")
        return self.all_rules(replace(shape, tie_embeddings=False)) if tied else []

    def copies(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of tensors that are tied to the token table: a checkpoint may have one in its place."""
        return tuple(name for rule in self.untied_rules(shape) if rule.ours in HEADS for name in rule.theirs)

    def all_rules(self, shape: Shape) -> list[TensorRule]:
        """Return the tensor mappings of all layers."""
        return [rule for each in self.rules(shape) for rule in each.layers(shape.layers)]


def linear_rules(ours: str, *theirs: str, kind: type[TensorRule] = TensorRule, bias: bool) -> list[TensorRule]:
    """Return the mappings of a linear layer: weight, and bias if it has one."""
    weight = kind(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs))
    # a bias vector has no transpose
    rows = TensorRule if kind is TransposedWeight else kind
    return [weight, rows(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs))] if bias else [weight]


def need_settings(family: Family, config: Mapping[str, Any], **settings: Any) -> None:
    """Raise a ValueError unless these settings, where config.json has them, have the only supported value."""
    for name, wanted in settings.items():
        came = config.get(name, wanted)
        need(
            came == wanted,
            f"{family.model_type} is supported with {name}={wanted!r} only",
            f"got {shown(came)}",
            "load another checkpoint",
        )


def _need_types(config: Mapping[str, Any]) -> None:
    """Raise a ValueError unless there is a type for each layer, where there are types."""
    types, layers = config.get("layer_types"), config.get("num_hidden_layers")
    must, came = f"layer_types must have one for each of the {layers} layers", f"got {shown(types)}"
    need(types is None or len(types) == layers, must, came, REMEDY)


def _need_whole_cache(family: Family, config: Mapping[str, Any]) -> None:
    """Raise a ValueError if transformers would forget tokens in its cache that attention reads without a cache."""
    # the caches of families with layer_types follow these
    typed = "layer_types" in {*family.defaults, *family.aliases}
    caches = family.model_class in (Decoder, EncoderDecoder) and not typed
    for name in ("sliding_window", "attention_chunk_size") if caches else ():
        need(
            name in family.defaults or config.get(name) is None,
            f"the attention of a {family.model_type} has no {name}: in transformers only its cache forgets tokens",
            f"got {name}={shown(config.get(name))}",
            "remove it from config.json",
        )


def need_usual(family: Family, config: Mapping[str, Any], **settings: Any) -> None:
    """Raise a ValueError unless these settings, where config.json has them and they are not null, have this value."""
    need_settings(family, {name: config[name] for name in settings if config.get(name) is not None}, **settings)
