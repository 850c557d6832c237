"""Mamba-2."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ordinate.core.checks import need, need_known
from ordinate.mixers.mamba2 import Mamba2 as Mixer
from ordinate.models.shape import Shape
from ordinate.pretrained._family import HF_ACTIVATIONS, TensorRule, activation_name, linear_rules
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.mamba2_like import LIMITS, Mamba2Keys, Mamba2Sizes, limit_config, mamba2_rules, step_limits

TABLE, EARLIER = "backbone.embeddings.weight", "backbone.embedding.weight"
KEYS = Mamba2Keys(
    heads="num_heads",
    head_dim="head_dim",
    groups="n_groups",
    states="state_size",
    taps="conv_kernel",
    expand="expand",
    bias="use_bias",
    convolution_bias="use_conv_bias",
)
"""The keys of its settings."""


class Mamba2(DecoderLike):
    """Mamba-2: layers of one mixer, without a feed-forward and without positions.

    The residual stream has the type of the weights: `residual_in_fp32` has no effect in float32, and none here.

    Source: Dao and Gu 2024, https://arxiv.org/abs/2405.21060.
    """

    model_type = "mamba2"
    base_class = "Mamba2Model"
    causal_lm_class = "Mamba2ForCausalLM"
    heads = ()
    prefix = "backbone."
    defaults: ClassVar[Mapping[str, Any]] = {
        "num_heads": 128,
        "head_dim": 64,
        "vocab_size": 32_768,
        "hidden_size": 4096,
        "state_size": 128,
        "num_hidden_layers": 64,
        "layer_norm_epsilon": 1e-5,
        "expand": 2,
        "conv_kernel": 4,
        "n_groups": 8,
        "use_bias": False,
        "use_conv_bias": True,
        "hidden_act": "silu",
        LIMITS: (0.0, math.inf),
        "pad_token_id": 1,
        "tie_word_embeddings": False,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        eps = config["layer_norm_epsilon"]
        need_known("hidden_act", config["hidden_act"], HF_ACTIVATIONS)
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            # the mixer has heads of its own
            heads=1,
            scheme="none",
            mixer=KEYS.spec(config, HF_ACTIVATIONS[config["hidden_act"]], eps, step_limits(config[LIMITS])),
            norm_eps=eps,
            feedforward="none",
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        sizes = Mamba2Sizes.of(_mixer_of(shape))
        variant = sizes.variant
        need(
            shape.feedforward == "none" and variant.norm_eps == shape.norm_eps,
            "a mamba2 requires feedforward none, and one epsilon of all norms: norm_eps, and variant.norm_eps of the "
            "mixer",
            f"got {shape.feedforward}, {shape.norm_eps} and {variant.norm_eps}",
            "use save_pretrained instead",
        )
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            **KEYS.config(sizes, shape.width),
            **limit_config(variant),
            "hidden_act": activation_name(variant.activation),
            "layer_norm_epsilon": shape.norm_eps,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        """Return a tensor's name in a checkpoint; the token table of early files has another one."""
        given = [super(Mamba2, self).stored_name(name, names) for name in (theirs, EARLIER)]
        return given[1] if theirs == TABLE and given[0] not in names and given[1] in names else given[0]

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = [
            TensorRule("tokens.weight", (TABLE,)),
            *linear_rules("norm", "backbone.norm_f", bias=False),
            *linear_rules("blocks.{}.mixer_norm", "backbone.layers.{}.norm", bias=False),
            *mamba2_rules(_mixer_of(shape).variant, "backbone.layers.{}.mixer", "blocks.{}.mixer"),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]


def _mixer_of(shape: Shape) -> Mixer:
    """Return the mixer of each layer, without memory; raise a ValueError for a shape that has another."""
    with torch.device("meta"):
        mixer = shape.make_mixer(0)
    if not isinstance(mixer, Mixer) or len(shape.mixer_spec.entries) > 1 or shape.scheme_spec != "none":
        came = f"got {shape.mixer_spec} and {shape.scheme_spec}"
        must = "a mamba2 requires the mixer mamba2 in all layers, and scheme none"
        raise ValueError(f"{must}; {came}; use save_pretrained instead")
    return mixer
