"""Falcon-H1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch

from ordinate.core.checks import need, shown
from ordinate.mixers._mamba2_options import NO_SCALES, NORM_EPS
from ordinate.mixers._spec import MixerSpec
from ordinate.mixers.mamba2 import Mamba2
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.granite_like import shortest_near
from ordinate.pretrained.llama_like import LlamaLike, unusual_scale
from ordinate.pretrained.mamba2_like import (
    AUTO,
    LIMITS,
    Mamba2Sizes,
    limit_config,
    mamba2_rules,
    step_limits,
)
from ordinate.pretrained.mamba_hybrid_like import KEYS as BAMBA_KEYS

INNER, OUT_BIAS = "mamba_d_ssm", "projectors_bias"
"""The keys of the channels of all heads of Mamba-2 together, and of the bias of its output projection."""
EXPAND = cast(str, BAMBA_KEYS.expand)
KEYS = replace(BAMBA_KEYS, expand=None)
"""The keys of its settings."""
NORM, NORM_FIRST = "mamba_rms_norm", "mamba_norm_before_gate"
"""The keys of whether it has a norm, and of whether this precedes the gate."""
KEY, ATTENTION_IN, ATTENTION_OUT = "key_multiplier", "attention_in_multiplier", "attention_out_multiplier"
"""The keys of the factors of attention: of its keys, its input and its output."""
PARTS, SSM_IN, SSM_OUT = "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier"
"""The keys of those of Mamba-2: of the parts of its projection, its input and its output."""
INNER_SCALES = "mlp_multipliers"
"""The key of those of the feed-forward: of its gate and its output."""
TABLE, LOGITS = "embedding_multiplier", "lm_head_multiplier"
"""The keys of those of token embeddings and logits."""
FACTORS = (KEY, ATTENTION_IN, ATTENTION_OUT, SSM_IN, SSM_OUT, TABLE, LOGITS)
"""The keys of single factors."""
DERIVED = "layers_block_type"
"""The types of layers, which transformers derives, and does not read."""


class FalconH1(LlamaLike):
    """Falcon-H1: Llama's attention and Mamba-2 beside each other in every layer, with factors of most projections.

    The factors of keys and of the input and the output of attention become one of the scores and one of the values;
    that of the input of Mamba-2 is one of each part of its projection.

    Source: TII 2025, Falcon-H1, https://arxiv.org/abs/2507.22448.
    """

    # transformers has no other
    heads = ()
    model_type = "falcon_h1"
    base_class = "FalconH1Model"
    causal_lm_class = "FalconH1ForCausalLM"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.usual,
        "vocab_size": 128_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
        "max_position_embeddings": 8192,
        "attention_bias": False,
        "mlp_bias": False,
        INNER: 1024,
        KEYS.heads: 128,
        KEYS.head_dim: AUTO,
        KEYS.groups: 1,
        KEYS.states: 256,
        KEYS.taps: 4,
        EXPAND: 2,
        KEYS.bias: False,
        KEYS.convolution_bias: True,
        OUT_BIAS: False,
        NORM: False,
        NORM_FIRST: True,
        LIMITS: (0.0, math.inf),
        **dict.fromkeys(FACTORS, 1.0),
        INNER_SCALES: None,
        PARTS: None,
        DERIVED: None,
    }
    aliases: ClassVar[Mapping[str, str]] = {"layer_types": DERIVED}
    optional_biases = ("attention_bias", "mlp_bias")
    null_is_false = frozenset({KEYS.bias, KEYS.convolution_bias, OUT_BIAS, NORM, NORM_FIRST})
    norms: ClassVar[Mapping[str, str]] = {"mixer_norm": "input_layernorm", "feedforward_norm": "pre_ff_layernorm"}
    final_norm = "final_layernorm"
    feedforward_name = "feed_forward"
    score_options = ("scale", "value_scale")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        must, came = f"a {self.model_type} has no {DERIVED}", f"got {shown(config[DERIVED])}"
        need(config[DERIVED] is None, must, came, "remove it from config.json, as transformers does not run it")
        made = super().shape(config)
        gate, out = _numbers(config, INNER_SCALES, 2)
        return replace(made, second_mixer=self.second_mixer(config), feedforward_scales=(gate, out))

    def scores(self, config: Mapping[str, Any], head_width: int) -> dict[str, float | None]:
        before, after = float(config[ATTENTION_IN]), float(config[ATTENTION_OUT])
        must = f"a {self.model_type} with attention_bias has {ATTENTION_IN}=1 and {ATTENTION_OUT}=1 here"
        plain = before == after == 1 or not config["attention_bias"]
        need(plain, must, f"got {before} and {after}", "load another checkpoint")
        need(before != 0, f"{ATTENTION_IN} must not be zero here", "got 0", "load another checkpoint")
        scale, value = before**2 * config[KEY] * head_width**-0.5, before * after
        return {"scale": unusual_scale(scale, head_width), "value_scale": None if value == 1 else value}

    def score_config(self, scores: Mapping[str, float | None], head_width: int) -> dict[str, Any]:
        usual, scale, value = head_width**-0.5, scores["scale"], scores["value_scale"]
        key = 1.0 if scale is None else shortest_near(scale / usual, lambda x: x * usual == scale)
        return {KEY: key, ATTENTION_OUT: 1.0 if value is None else value}

    def scales(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"embedding_scale": float(config[TABLE]), "logit_scale": float(config[LOGITS])}

    def scale_config(self, shape: Shape) -> dict[str, Any]:
        return {TABLE: shape.embedding_scale, LOGITS: shape.logit_scale, INNER_SCALES: list(shape.feedforward_scales)}

    def second_mixer(self, config: Mapping[str, Any]) -> str:
        """Return the Mamba-2 of every layer; raise a ValueError for settings that do not fit."""
        heads, inner = config[KEYS.heads], config[INNER]
        inner = config[EXPAND] * config["hidden_size"] if inner is None else inner
        channels = inner // heads if config[KEYS.head_dim] == AUTO else config[KEYS.head_dim]
        must = f"{KEYS.heads} x {KEYS.head_dim} must be {INNER}, or without it {EXPAND} x hidden_size"
        fits = isinstance(channels, int) and heads * channels == inner
        need(fits, must, f"got {heads} x {shown(channels)} and {inner}", "correct it")
        biased, factor = bool(config[KEYS.bias]), float(config[SSM_IN])
        must, came = f"{OUT_BIAS} must be as {KEYS.bias} here", f"got {config[OUT_BIAS]} and {config[KEYS.bias]}"
        need(bool(config[OUT_BIAS]) is biased, must, came, "load another checkpoint")
        must = f"a {self.model_type} with {KEYS.bias} has {SSM_IN}=1 here"
        need(factor == 1 or not biased, must, f"got {factor}", "load another checkpoint")
        scales, normed = tuple(factor * part for part in _numbers(config, PARTS, 5)), bool(config[NORM])
        activation, eps = GATED[cast(Any, self.gates[config["hidden_act"]])], config[self.eps_key]
        made = {**config, KEYS.head_dim: channels}
        spec = KEYS.spec(made, activation, eps if normed else NORM_EPS, step_limits(config[LIMITS]))
        options = {
            **({} if normed else {"norm": "false"}),
            **({"norm_before_gate": "true"} if normed and config[NORM_FIRST] else {}),
            **({} if scales == NO_SCALES else {"scales": ";".join(map(str, scales))}),
            **({} if config[SSM_OUT] == 1 else {"out_scale": float(config[SSM_OUT])}),
        }
        return ",".join([spec, *(f"variant.{name}={value}" for name, value in options.items())])

    def config(self, shape: Shape) -> dict[str, Any]:
        sizes = self.mamba_sizes(shape)
        variant, eps = sizes.variant, shape.norm_eps if sizes.variant.norm else NORM_EPS
        must = (
            f"the Mamba-2 of a {self.model_type} has the activation of its feedforward and the norm_eps of the model"
        )
        came = f"got {variant.activation}, {variant.norm_eps} with {shape.feedforward}, {shape.norm_eps}"
        own = GATED.get(cast(Any, shape.feedforward)), eps
        need((variant.activation, variant.norm_eps) == own, must, came, "use save_pretrained instead")
        return {
            **super().config(shape),
            **KEYS.config(sizes, shape.width),
            INNER: sizes.heads * sizes.head_dim,
            OUT_BIAS: variant.bias,
            NORM: variant.norm,
            NORM_FIRST: variant.norm_before_gate,
            PARTS: list(variant.scales),
            SSM_OUT: variant.out_scale,
            **limit_config(variant),
        }

    def mamba_sizes(self, shape: Shape) -> Mamba2Sizes:
        """Return the sizes of the Mamba-2 of every layer; raise a ValueError for other mixers in its place."""
        spec = shape.second_mixer_spec
        layers = range(shape.layers)
        fits = spec is not None and all(issubclass(spec.class_of(layer), Mamba2) for layer in layers)
        must = f"a {self.model_type} has the same second_mixer mamba2 in all layers"
        need(fits, must, f"got {spec}", "use save_pretrained instead")
        with torch.device("meta"):
            mixers = [cast(MixerSpec, spec).build(layer, shape.bindable_sizes) for layer in layers]
        found = {Mamba2Sizes.of(cast(Mamba2, mixer)) for mixer in mixers}
        need(len(found) == 1, must, f"got {spec}", "use save_pretrained instead")
        return found.pop()

    def attention_rules(self, shape: Shape) -> Sequence[TensorRule]:
        variant, there = self.mamba_sizes(shape).variant, "model.layers.{}.mamba"
        return [*super().attention_rules(shape), *mamba2_rules(variant, there, "blocks.{}.second_mixer")]


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and math.isfinite(given)


def _numbers(config: Mapping[str, Any], name: str, count: int) -> tuple[float, ...]:
    """Return the numbers of a key; null are ones."""
    given = [1.0] * count if config[name] is None else config[name]
    right = isinstance(given, list | tuple) and len(given) == count and all(map(_is_number, given))
    need(right, f"{name} must be {count} finite numbers", f"got {shown(given)}", "correct it, or leave it out")
    return tuple(map(float, given))
