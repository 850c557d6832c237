"""Base class of decoders whose layers have one recurrent mixer and no feed-forward."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch

from ordinate.core.checks import need, need_known
from ordinate.mixers._mixer import Mixer
from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import HF_ACTIVATIONS
from ordinate.pretrained.decoder_like import DecoderLike

Recurrent = TypeVar("Recurrent", bound=Mixer[Any])
TABLE = "backbone.embeddings."
"""The beginning of the name of the token table."""
EPS, ACTIVATION = "layer_norm_epsilon", "hidden_act"
"""The keys of the epsilon of norms, and of the function behind the convolution of a mixer."""


class MixerOnlyLike(DecoderLike, Generic[Recurrent]):
    """Decoders of layers with one recurrent mixer, without a feed-forward and without positions.

    The residual stream has the type of the weights: `residual_in_fp32` has no effect in float32, and none here.

    Must: as `DecoderLike`, and `recurrent`, `recurrent_name`, `mixer_rules`, and in a pair, to read and to write:
        `mixer_spec` and `mixer_config`.
    """

    recurrent: ClassVar[type[Mixer[Any]]]
    """The mixer."""
    recurrent_name: ClassVar[str]
    """Its name."""
    # transformers has no other
    heads = ()
    prefix = "backbone."
    usual: ClassVar[Mapping[str, Any]] = {
        EPS: 1e-5,
        "expand": 2,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        ACTIVATION: "silu",
    }
    """Default values that these families share."""

    @abstractmethod
    def mixer_spec(self, config: Mapping[str, Any], activation: Activation) -> str:
        """Return the mixer of these settings; raise a ValueError for sizes that do not fit.

        Args:
            config: the settings of the checkpoint.
            activation: function behind the short convolution.
        """

    @abstractmethod
    def mixer_config(self, shape: Shape, mixer: Recurrent) -> dict[str, Any]:
        """Return the config.json keys of the mixer of a shape; raise a ValueError for options of other models."""

    @abstractmethod
    def mixer_rules(self, mixer: Recurrent, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of a mixer.

        Args:
            mixer: the mixer.
            there: its name in the checkpoint.
            here: its name in our model.
        """

    def shape(self, config: Mapping[str, Any]) -> Shape:
        need_known(ACTIVATION, config[ACTIVATION], HF_ACTIVATIONS)
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            # the mixer has no heads, or some of its own
            heads=1,
            scheme="none",
            mixer=self.mixer_spec(config, HF_ACTIVATIONS[config[ACTIVATION]]),
            norm_eps=config[EPS],
            feedforward="none",
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixer = self._mixer_of(shape)
        must, came = f"a {self.model_type} requires feedforward none", f"got {shape.feedforward}"
        need(shape.feedforward == "none", must, came, "use save_pretrained instead")
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            **self.mixer_config(shape, mixer),
            EPS: shape.norm_eps,
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = [
            TensorRule("tokens.weight", (f"{TABLE}weight",)),
            *linear_rules("norm", "backbone.norm_f", bias=False),
            *linear_rules("blocks.{}.mixer_norm", "backbone.layers.{}.norm", bias=False),
            *self.mixer_rules(self._mixer_of(shape), "backbone.layers.{}.mixer", "blocks.{}.mixer"),
        ]
        return rules if shape.tie_embeddings else [*rules, TensorRule("head.weight", ("lm_head.weight",))]

    def _mixer_of(self, shape: Shape) -> Any:
        """Return the mixer of each layer, without memory; raise a ValueError for a shape that has another."""
        with torch.device("meta"):
            mixer = shape.make_mixer(0)
        fits = (
            isinstance(mixer, self.recurrent) and len(shape.mixer_spec.entries) == 1 and shape.scheme_spec == "none"
        )
        must = f"a {self.model_type} requires the mixer {self.recurrent_name} in all layers, and scheme none"
        need(fits, must, f"got {shape.mixer_spec} and {shape.scheme_spec}", "use save_pretrained instead")
        return mixer
