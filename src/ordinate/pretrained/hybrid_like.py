"""Base class of decoders with a gated DeltaNet in some layers and softmax attention in the others."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch

from ordinate.core.checks import need, shown
from ordinate.mixers._delta_rule import DeltaRuleSizes
from ordinate.mixers.gated_deltanet import GatedDeltaNet
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.ops.activation import NOT_ZERO_AT_ZERO, Activation
from ordinate.pretrained._family import TensorRule, activation_kind, linear_rules
from ordinate.pretrained.grouped_rows import ChannelFilters
from ordinate.pretrained.llama_like import LlamaLike, MixerParts
from ordinate.pretrained.rope_parameters import NONE
from ordinate.pretrained.sliding_windows import FULL

LINEAR = "linear_attention"
"""The type of layers with a gated DeltaNet."""
EARLIER: Mapping[str, str] = {"mamba": LINEAR, "attention": FULL}
"""Earlier names of the types of layers."""
TYPES = "layer_types"
KEY_HEADS, HEADS = "linear_num_key_heads", "linear_num_value_heads"
"""The keys of the heads of a gated DeltaNet."""
KEY_WIDTH, VALUE_WIDTH, TAPS = "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"
"""The keys of the channels of its heads, and of the span of its convolution."""
LINEAR_SIZES = frozenset({KEY_HEADS, HEADS, KEY_WIDTH, VALUE_WIDTH, TAPS})
ATTENTION_SIZES = frozenset({"num_attention_heads", "num_key_value_heads", "head_dim"})


class HybridLike(LlamaLike):
    """Decoders with a gated DeltaNet in some layers and softmax attention in the others, as `layer_types` says.

    Must: as `LlamaLike`, and `usual_types` and `projection_rules`.
    May: `delta_norm`, `delta_out`, `negative_eigenvalues`, `delta_eps` and `filter_rule`.
    """

    delta_norm: ClassVar[str] = "norm"
    """Name of the norm of a gated DeltaNet in checkpoints."""
    delta_out: ClassVar[str] = "out_proj"
    """Name of its output projection in checkpoints."""

    @abstractmethod
    def usual_types(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Return the types of the layers of a config.json that does not say them."""

    @abstractmethod
    def projection_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of the input projections of a gated DeltaNet: `project`, `gate`, `rate`, `step`.

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
        mixer = self.delta_spec(config)
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

    def delta_spec(self, config: Mapping[str, Any]) -> str:
        """Return the mixer of the layers with a gated DeltaNet."""
        for name in sorted(LINEAR_SIZES):
            fits, must = (
                isinstance(config[name], int) and config[name] > 0,
                f"{name} must be a whole number above zero",
            )
            need(fits, must, f"got {shown(config[name])}", "load another checkpoint")
        heads, keys, values = config[HEADS], config[KEY_WIDTH], config[VALUE_WIDTH]
        must, came = f"{KEY_HEADS} must divide {HEADS}", f"got {config[KEY_HEADS]} and {heads}"
        need(heads % config[KEY_HEADS] == 0, must, came, "load another checkpoint")
        # as a ratio where it is one
        width = f"value_ratio={values // keys}" if values % keys == 0 else f"variant.value_width={values}"
        options = [f"heads={heads}", f"key_width={keys}", width, f"taps={config[TAPS]}"]
        options += ["negative_eigenvalues=true"] if self.negative_eigenvalues(config) else []
        options += [] if config[KEY_HEADS] == heads else [f"variant.key_heads={config[KEY_HEADS]}"]
        options += [f"variant.norm_eps={self.delta_eps(config)}"]
        activation = self._activation(config)
        options += [] if activation == "silu" else [f"variant.activation={activation}"]
        return "gated_deltanet:" + ",".join(options)

    def negative_eigenvalues(self, config: Mapping[str, Any]) -> bool:
        """Whether the share that a value replaces is twice a sigmoid."""
        return False

    def delta_eps(self, config: Mapping[str, Any]) -> float:
        """Return the epsilon of the norm of a gated DeltaNet."""
        return config[self.eps_key]

    def config(self, shape: Shape) -> dict[str, Any]:
        types, sizes = self._types_of(shape), self._delta_sizes(shape)
        made = {**super().config(self._attending(shape)), TYPES: types}
        return made if sizes is None else {**made, **self.delta_config(shape, sizes)}

    def delta_config(self, shape: Shape, sizes: DeltaRuleSizes) -> dict[str, Any]:
        """Return the config.json keys of the layers with a gated DeltaNet; raise a ValueError for others."""
        inner = GATED.get(cast(Any, shape.feedforward))
        need(
            sizes.gate and sizes.activation == inner,
            f"a {self.model_type} has gates in its gated DeltaNets, and the activation of its feedforward there",
            f"got gate={sizes.gate}, activation={sizes.activation!r} and feedforward={shape.feedforward!r}",
            "use save_pretrained instead",
        )
        return {
            HEADS: sizes.heads,
            KEY_HEADS: sizes.query_heads,
            KEY_WIDTH: sizes.key_width,
            VALUE_WIDTH: sizes.value_width,
            TAPS: sizes.taps,
        }

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        attention, sizes = super().attention_rules(self._attending(shape)), self._delta_sizes(shape)
        rules: list[TensorRule] = []
        for layer, kind in enumerate(self._types_of(shape)):
            if kind == LINEAR and sizes is not None:
                rules += self.delta_rules(sizes, f"model.layers.{layer}.linear_attn", f"blocks.{layer}.mixer")
            else:
                rules += [rule.layers(shape.layers)[layer] for rule in attention]
        return rules

    def delta_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of a gated DeltaNet."""
        named = {"decay.log_rate": "A_log", "decay.bias": "dt_bias", "norm_scale": f"{self.delta_norm}.weight"}
        return [
            *self.projection_rules(sizes, there, here),
            self.filter_rule(sizes, there, here),
            *(TensorRule(f"{here}.{ours}", (f"{there}.{name}",)) for ours, name in named.items()),
            *linear_rules(f"{here}.out", f"{there}.{self.delta_out}", bias=False),
        ]

    def filter_rule(self, sizes: DeltaRuleSizes, there: str, here: str) -> TensorRule:
        """Return the tensor mapping of the filters of a gated DeltaNet; arguments as of `projection_rules`."""
        return ChannelFilters(f"{here}.convolution.weight", (f"{there}.conv1d.weight",))

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        types = self._types_of(shape)
        lacking = [sizes for kind, sizes in ((LINEAR, LINEAR_SIZES), (FULL, ATTENTION_SIZES)) if kind not in types]
        return (super().used_sizes(shape) | LINEAR_SIZES | ATTENTION_SIZES) - frozenset().union(*lacking)

    def _activation(self, config: Mapping[str, Any]) -> Activation:
        """Return the activation of the convolutions, that of the feed-forward."""
        kind = activation_kind(config, self.activation_key, self.gates)
        must = f"{self.activation_key} of a {self.model_type} must take 0 to 0: padding would change its texts"
        activation = GATED[cast(Any, kind)]
        came = f"got {shown(config[self.activation_key])}"
        need(activation not in NOT_ZERO_AT_ZERO, must, came, "load another checkpoint")
        return activation

    def _types_of(self, shape: Shape) -> list[str]:
        """Return the types of the layers of a shape."""
        spec = shape.mixer_spec
        return [LINEAR if issubclass(spec.class_of(layer), GatedDeltaNet) else FULL for layer in range(shape.layers)]

    def _delta_sizes(self, shape: Shape) -> DeltaRuleSizes | None:
        """Return the sizes of the gated DeltaNets, all alike; None: the model has none."""
        layers = [layer for layer, kind in enumerate(self._types_of(shape)) if kind == LINEAR]
        with torch.device("meta"):
            found = {cast(GatedDeltaNet, shape.make_mixer(layer)).sizes for layer in layers}
        must = f"a {self.model_type} has the same gated DeltaNet in all layers that have one"
        need(len(found) < 2, must, f"got {shape.mixer_spec}", "use save_pretrained instead")
        return next(iter(found), None)

    def _attending(self, shape: Shape) -> Shape:
        """Return the shape of a model with the attention of some layers in all of them."""
        types, spec, plan = self._types_of(shape), shape.mixer_spec.entries, shape.scheme_spec.entries
        pairs = [(spec[layer % len(spec)], plan[layer % len(plan)]) for layer in range(shape.layers)]
        found = {pair for pair, kind in zip(pairs, types, strict=True) if kind == FULL}
        others = {scheme for (_, scheme), kind in zip(pairs, types, strict=True) if kind == LINEAR}
        need(
            len(found) < 2 and others <= {NONE},
            f"a {self.model_type} has one kind of attention, with one scheme, and none in the other layers",
            f"got {shape.mixer_spec} with {shape.scheme_spec}",
            "use save_pretrained instead",
        )
        usual = self._mixer(shape.norm_eps, {}, MixerParts(normed=self.qk_norm)), NONE
        mixer, scheme = next(iter(found), usual)
        return replace(shape, mixer=mixer, scheme=scheme)
