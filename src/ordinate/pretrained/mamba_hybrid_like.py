"""Base classes of decoders with Mamba-2 in some layers and softmax attention in the others."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need
from ordinate.mixers._mamba2_options import Mamba2Options
from ordinate.mixers.mamba2 import Mamba2
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.activation_names import activation_kind
from ordinate.pretrained.hybrid_like import HybridLike
from ordinate.pretrained.mamba2_like import (
    AUTO,
    LIMITS,
    Limits,
    Mamba2Keys,
    Mamba2Sizes,
    limit_config,
    mamba2_rules,
    step_limits,
)


class MambaHybridLike(HybridLike[Mamba2Sizes]):
    """Decoders with Mamba-2 in some layers and softmax attention in the others.

    Must: as `LlamaLike`, and `mamba_keys`, `recurrent_keys` and `usual_types`.
    May, to read and to write: `convolution_activation` and `limits`, with `own_config`.
    """

    mamba_keys: ClassVar[Mamba2Keys]
    """The keys of the settings of Mamba-2."""
    # transformers has no other
    heads = ()
    recurrent = Mamba2
    recurrent_mixer = "Mamba-2"
    recurrent_name = "mamba"

    def convolution_activation(self, config: Mapping[str, Any]) -> Activation:
        """Return the function behind the convolution of Mamba-2: that of the feed-forward."""
        return GATED[cast(Any, activation_kind(config, self.activation_key, self.gates))]

    def limits(self, config: Mapping[str, Any]) -> Limits:
        """Return the limits of its step size."""
        return step_limits(config[LIMITS])

    def own_config(self, shape: Shape, variant: Mamba2Options) -> dict[str, Any]:
        """Return the config.json keys of limits and activation; raise a ValueError for options of other models."""
        inner = GATED.get(cast(Any, shape.feedforward))
        must = f"the Mamba-2 of a {self.model_type} has the activation of its feedforward"
        came = f"got {variant.activation} with {shape.feedforward}"
        need(variant.activation == inner, must, came, "use save_pretrained instead")
        return limit_config(variant)

    def recurrent_spec(self, config: Mapping[str, Any]) -> str:
        activation = self.convolution_activation(config)
        return self.mamba_keys.spec(config, activation, config[self.eps_key], self.limits(config))

    def sizes_of(self, mixer: Mamba2) -> Mamba2Sizes:
        return Mamba2Sizes.of(mixer)

    def config(self, shape: Shape) -> dict[str, Any]:
        # transformers refuses sizes that do not fit in models without Mamba-2 too
        return {self.mamba_keys.heads: 1, **super().config(shape)}

    def recurrent_config(self, shape: Shape, sizes: Mamba2Sizes) -> dict[str, Any]:
        must = f"the Mamba-2 of a {self.model_type} has the norm_eps of the model"
        came = f"got {sizes.variant.norm_eps} and {shape.norm_eps}"
        need(sizes.variant.norm_eps == shape.norm_eps, must, came, "use save_pretrained instead")
        return {**self.mamba_keys.config(sizes, shape.width), **self.own_config(shape, sizes.variant)}

    def recurrent_rules(self, sizes: Mamba2Sizes, there: str, here: str) -> Sequence[TensorRule]:
        return mamba2_rules(sizes.variant, there, here)


KEYS = Mamba2Keys(
    heads="mamba_n_heads",
    head_dim="mamba_d_head",
    groups="mamba_n_groups",
    states="mamba_d_state",
    taps="mamba_d_conv",
    bias="mamba_proj_bias",
    convolution_bias="mamba_conv_bias",
    expand="mamba_expand",
)
"""The keys of the settings of Mamba-2 in decoders like Bamba."""


class BambaLike(MambaHybridLike):
    """Decoders like Bamba: a feed-forward in every layer, whose activation the convolution of Mamba-2 has too.

    Must: as `LlamaLike`, and `usual_types`.
    """

    usual_mamba: ClassVar[Mapping[str, Any]] = {
        KEYS.heads: 128,
        KEYS.head_dim: AUTO,
        KEYS.groups: 1,
        KEYS.states: 256,
        KEYS.taps: 4,
        cast(str, KEYS.expand): 2,
        KEYS.bias: False,
        KEYS.convolution_bias: True,
        LIMITS: (0.0, math.inf),
    }
    """Default values of the settings of Mamba-2."""
    mamba_keys = KEYS
    recurrent_keys = KEYS.names
    null_is_false = frozenset({KEYS.bias, KEYS.convolution_bias})
