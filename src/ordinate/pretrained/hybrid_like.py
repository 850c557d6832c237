"""Base class of decoders with a recurrent mixer in some layers and softmax attention in the others."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import torch

from ordinate.core.checks import need, shown
from ordinate.mixers._mixer import Mixer
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.llama_like import LlamaLike
from ordinate.pretrained.rope_parameters import NONE
from ordinate.pretrained.sliding_windows import FULL

Sizes = TypeVar("Sizes")
LINEAR = "linear_attention"
"""The type of layers with a recurrent mixer."""
EARLIER: Mapping[str, str] = {"mamba": LINEAR, "attention": FULL}
"""Earlier names of the types of layers."""
TYPES = "layer_types"
ATTENTION_SIZES = frozenset({"num_attention_heads", "num_key_value_heads", "head_dim"})
"""The keys of the sizes of softmax attention."""


class WithoutPositions(LlamaLike):
    """Decoders whose attention has no positions: its recurrent layers know the order of the tokens."""

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        return NONE

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        must, came = f"a {self.model_type} has scheme none", f"got {shape.scheme_spec}"
        need(shape.scheme_spec == NONE, must, came, "use save_pretrained instead")
        return {}


class HybridLike(LlamaLike, Generic[Sizes]):
    """Decoders with a recurrent mixer, the same in all layers that have one, and softmax attention in the others.

    Must: as `LlamaLike`, and `recurrent`, `recurrent_mixer`, `recurrent_name`, `recurrent_keys`, `usual_types`,
        `sizes_of`, `recurrent_rules`, and in a pair, to read and to write: `recurrent_spec` and `recurrent_config`.
    May: `attention_sizes`; in a pair, `types` and `type_config`.
    """

    recurrent: ClassVar[type[Mixer[Any]]]
    """The recurrent mixer."""
    recurrent_mixer: ClassVar[str]
    """What messages call it."""
    recurrent_name: ClassVar[str]
    """Its name in the layer of a checkpoint."""
    recurrent_keys: ClassVar[frozenset[str]]
    """The keys of its sizes."""
    attention_sizes: ClassVar[frozenset[str]] = ATTENTION_SIZES
    """The keys of the sizes of attention."""

    @abstractmethod
    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Return the types of the layers of a config.json that does not say them."""

    @abstractmethod
    def recurrent_spec(self, config: Mapping[str, Any]) -> str:
        """Return the recurrent mixer; raise a ValueError for sizes that do not fit."""

    @abstractmethod
    def sizes_of(self, mixer: Any) -> Sizes:
        """Return the sizes and options of a recurrent mixer."""

    @abstractmethod
    def recurrent_config(self, shape: Shape, sizes: Sizes) -> dict[str, Any]:
        """Return the config.json keys of the layers with the recurrent mixer; raise a ValueError for others."""

    @abstractmethod
    def recurrent_rules(self, sizes: Sizes, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of a recurrent mixer.

        Args:
            sizes: its sizes.
            there: its name in the checkpoint.
            here: its name in our model.
        """

    def shape(self, config: Mapping[str, Any]) -> Shape:
        types = self.types(config)
        plain = super().shape(config)
        if LINEAR not in types:
            return plain
        mixer = self.recurrent_spec(config)
        if FULL not in types:
            # sizes of attention have no effect
            plain = replace(plain, mixer=mixer, scheme=NONE, heads=1, kv_heads=None, head_width=None)
            return plain
        mixers = [mixer if kind == LINEAR else plain.mixer_spec for kind in types]
        schemes = [NONE if kind == LINEAR else plain.scheme_spec for kind in types]
        return replace(plain, mixer=",".join(mixers), scheme=",".join(schemes))

    def types(self, config: Mapping[str, Any]) -> list[str]:
        """Return the types of the layers; raise a ValueError for others than the two."""
        given = config[TYPES]
        types = [EARLIER.get(kind, kind) for kind in (self.usual_types(config) if given is None else given)]
        must, remedy = f"{TYPES} must be {LINEAR} or {FULL}", "correct it, or load another checkpoint"
        need(set(types) <= {LINEAR, FULL}, must, f"got {shown(types)}", remedy)
        return types

    def type_config(self, types: Sequence[str]) -> dict[str, Any]:
        """Return the config.json keys of the types of the layers."""
        return {TYPES: types}

    def config(self, shape: Shape) -> dict[str, Any]:
        types, sizes = self.types_of(shape), self.recurrent_sizes(shape)
        made = {**super().config(self._attending(shape)), **self.type_config(types)}
        return made if sizes is None else {**made, **self.recurrent_config(shape, sizes)}

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        attention, sizes = super().attention_rules(self._attending(shape)), self.recurrent_sizes(shape)
        rules: list[TensorRule] = []
        for layer, kind in enumerate(self.types_of(shape)):
            if kind == LINEAR and sizes is not None:
                there = f"model.layers.{layer}.{self.recurrent_name}"
                rules += self.recurrent_rules(sizes, there, f"blocks.{layer}.mixer")
            else:
                rules += [rule.layers(shape.layers)[layer] for rule in attention]
        return rules

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        types, own, attention = self.types_of(shape), self.recurrent_keys, self.attention_sizes
        lacking = [sizes for kind, sizes in ((LINEAR, own), (FULL, attention)) if kind not in types]
        return (super().used_sizes(shape) | own | attention) - frozenset().union(*lacking)

    def types_of(self, shape: Shape) -> list[str]:
        """Return the types of the layers of a shape."""
        spec = shape.mixer_spec
        return [LINEAR if issubclass(spec.class_of(layer), self.recurrent) else FULL for layer in range(shape.layers)]

    def recurrent_sizes(self, shape: Shape) -> Sizes | None:
        """Return the sizes of the recurrent mixers, all alike; None: the model has none."""
        layers = [layer for layer, kind in enumerate(self.types_of(shape)) if kind == LINEAR]
        with torch.device("meta"):
            found = {self.sizes_of(shape.make_mixer(layer)) for layer in layers}
        must = f"a {self.model_type} has the same {self.recurrent_mixer} in all layers that have one"
        need(len(found) < 2, must, f"got {shape.mixer_spec}", "use save_pretrained instead")
        return next(iter(found), None)

    def _attending(self, shape: Shape) -> Shape:
        """Return the shape of a model with the attention of some layers in all of them."""
        types, spec, plan = self.types_of(shape), shape.mixer_spec.entries, shape.scheme_spec.entries
        pairs = [(spec[layer % len(spec)], plan[layer % len(plan)]) for layer in range(shape.layers)]
        found = {pair for pair, kind in zip(pairs, types, strict=True) if kind == FULL}
        others = {scheme for (_, scheme), kind in zip(pairs, types, strict=True) if kind == LINEAR}
        need(
            len(found) < 2 and others <= {NONE},
            f"a {self.model_type} has one kind of attention, with one scheme, and none in the other layers",
            f"got {shape.mixer_spec} with {shape.scheme_spec}",
            "use save_pretrained instead",
        )
        usual = next(reversed(self._mixers(shape))), NONE
        mixer, scheme = next(iter(found), usual)
        return replace(shape, mixer=mixer, scheme=scheme)
