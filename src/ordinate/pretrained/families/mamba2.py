"""Mamba-2."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need
from ordinate.mixers.mamba2 import Mamba2 as Mixer
from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.activation_names import activation_name
from ordinate.pretrained.mamba2_like import LIMITS, Mamba2Keys, Mamba2Sizes, limit_config, mamba2_rules, step_limits
from ordinate.pretrained.mixer_only_like import ACTIVATION, EPS, TABLE, MixerOnlyLike

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


class Mamba2(MixerOnlyLike[Mixer]):
    """Mamba-2: layers of one mixer, without a feed-forward and without positions.

    Source: Dao and Gu 2024, https://arxiv.org/abs/2405.21060.
    """

    model_type = "mamba2"
    base_class = "Mamba2Model"
    causal_lm_class = "Mamba2ForCausalLM"
    recurrent = Mixer
    recurrent_name = "mamba2"
    # of early files
    renamed: ClassVar[Mapping[str, str]] = {TABLE: "backbone.embedding."}
    defaults: ClassVar[Mapping[str, Any]] = {
        **MixerOnlyLike.usual,
        "num_heads": 128,
        "head_dim": 64,
        "vocab_size": 32_768,
        "hidden_size": 4096,
        "state_size": 128,
        "num_hidden_layers": 64,
        "n_groups": 8,
        LIMITS: (0.0, math.inf),
        "pad_token_id": 1,
        "tie_word_embeddings": False,
    }

    def mixer_spec(self, config: Mapping[str, Any], activation: Activation) -> str:
        return KEYS.spec(config, activation, config[EPS], step_limits(config[LIMITS]))

    def mixer_config(self, shape: Shape, mixer: Mixer) -> dict[str, Any]:
        sizes, variant = Mamba2Sizes.of(mixer), mixer.variant
        must = "a mamba2 requires one epsilon of all norms: norm_eps, and variant.norm_eps of the mixer"
        came = f"got {shape.norm_eps} and {variant.norm_eps}"
        need(variant.norm_eps == shape.norm_eps, must, came, "use save_pretrained instead")
        activation = {ACTIVATION: activation_name(variant.activation)}
        return {**KEYS.config(sizes, shape.width), **limit_config(variant), **activation}

    def mixer_rules(self, mixer: Mixer, there: str, here: str) -> Sequence[TensorRule]:
        return mamba2_rules(mixer.variant, there, here)
