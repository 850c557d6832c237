"""Layers of Mamba in checkpoints: their settings, which families name differently, and their tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.mixers._mamba_options import MambaOptions, SelectionNorm
from ordinate.mixers.mamba import COLUMNS, Mamba
from ordinate.models.shape import Shape
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.activation_names import activation_name
from ordinate.pretrained.grouped_rows import ChannelFilters
from ordinate.pretrained.mamba2_like import AUTO
from ordinate.pretrained.mixer_only_like import ACTIVATION, MixerOnlyLike

INNER = "intermediate_size"
"""The key of the channels of models without a feed-forward, where they do not follow from those of the model."""
NORMED = ("dt_layernorm", "b_layernorm", "c_layernorm")
"""The names of the norms of the numbers of step sizes, of B and of C."""


@dataclass(frozen=True)
class MambaSizes:
    """Sizes and options of a layer of Mamba.

    Args:
        inner: its channels.
        states: states of each channel.
        rank: numbers from which the step sizes are computed.
        taps: tokens that the short convolution spans.
        variant: its options, with an epsilon where there are norms, and without the channels.
    """

    inner: int
    states: int
    rank: int
    taps: int
    variant: MambaOptions

    @classmethod
    def of(cls, mixer: Mamba) -> "MambaSizes":
        """Return those of a mixer."""
        inner, taps = mixer.convolution.weight.shape
        rank, states, _ = mixer.sizes
        eps = None if mixer.variant.norm == "none" else mixer.variant.epsilon
        return cls(inner, states, rank, taps, replace(mixer.variant, inner=None, norm_eps=eps))


@dataclass(frozen=True)
class MambaKeys:
    """The keys of config.json for the settings of a layer of Mamba.

    Args:
        states: of the states of each channel.
        rank: of the numbers from which the step sizes are computed, which may be `auto`.
        taps: of the tokens that the short convolution spans.
        expand: of the channels, for each column of the model.
        bias: of whether both projections have biases.
        convolution_bias: of whether the short convolution has one.
    """

    states: str
    rank: str
    taps: str
    expand: str
    bias: str
    convolution_bias: str

    @property
    def names(self) -> frozenset[str]:
        """The keys of config.json of all settings."""
        return frozenset(getattr(self, field.name) for field in fields(self))

    def spec(self, config: Mapping[str, Any], inner: int, activation: Activation, norms: Mapping[str, Any]) -> str:
        """Return the mixer of these settings.

        Args:
            config: the settings of the checkpoint.
            inner: its channels.
            activation: function behind the short convolution.
            norms: the options of its norms.

        Raises:
            ValueError: sizes that do not fit.
        """
        width, rank = config["hidden_size"], config[self.rank]
        rank = -(-width // COLUMNS) if rank == AUTO else rank
        must, came = f"{self.rank} must be a whole number above zero, or {AUTO!r}", f"got {shown(rank)}"
        need(isinstance(rank, int) and rank > 0, must, came, "correct it, or leave it out")
        times, rest = divmod(inner, width)
        options = {
            **({"variant.inner": inner} if rest else {"expand": times}),
            "states": config[self.states],
            "rank": rank,
            "taps": config[self.taps],
            "variant.bias": str(bool(config[self.bias])).lower(),
            "variant.convolution_bias": str(bool(config[self.convolution_bias])).lower(),
            **({} if activation == "silu" else {"variant.activation": activation}),
            **{f"variant.{name}": value for name, value in norms.items()},
        }
        return "mamba:" + ",".join(f"{name}={value}" for name, value in options.items())

    def config(self, sizes: MambaSizes) -> dict[str, Any]:
        """Return the config.json keys of a mixer, without that of its channels."""
        return {
            self.states: sizes.states,
            self.rank: sizes.rank,
            self.taps: sizes.taps,
            self.bias: sizes.variant.bias,
            self.convolution_bias: sizes.variant.convolution_bias,
        }


def mamba_rules(variant: MambaOptions, there: str, here: str) -> Sequence[TensorRule]:
    """Return the tensor mappings of a mixer.

    Args:
        variant: its options.
        there: its name in the checkpoint.
        here: its name in our model.
    """
    named = {"step": "dt_proj.weight", "step_bias": "dt_proj.bias", "log_rate": "A_log", "skip": "D"}
    if variant.convolution_bias:
        named["convolution.bias"] = "conv1d.bias"
    if variant.norm == "scaled":
        named |= {f"norm_scales.{place}": f"{name}.weight" for place, name in enumerate(NORMED)}
    return [
        *linear_rules(f"{here}.project", f"{there}.in_proj", bias=variant.bias),
        *linear_rules(f"{here}.select", f"{there}.x_proj", bias=False),
        *linear_rules(f"{here}.out", f"{there}.out_proj", bias=variant.bias),
        ChannelFilters(f"{here}.convolution.weight", (f"{there}.conv1d.weight",)),
        *(TensorRule(f"{here}.{ours}", (f"{there}.{name}",)) for ours, name in named.items()),
    ]


KEYS = MambaKeys(
    states="state_size",
    rank="time_step_rank",
    taps="conv_kernel",
    expand="expand",
    bias="use_bias",
    convolution_bias="use_conv_bias",
)
"""The keys of the settings of models without a feed-forward."""


class MambaLike(MixerOnlyLike[Mamba]):
    """Decoders of layers with Mamba, without a feed-forward and without positions.

    Must: as `DecoderLike`.
    May: `norm` and `norm_eps_key`.
    """

    recurrent = Mamba
    recurrent_name = "mamba"
    norm: ClassVar[SelectionNorm] = "none"
    """The norms of the numbers of step sizes, of B and of C."""
    norm_eps_key: ClassVar[str] = ""
    """The key of their epsilon, in families with norms."""
    usual: ClassVar[Mapping[str, Any]] = {
        **MixerOnlyLike.usual,
        "vocab_size": 50_280,
        "hidden_size": 768,
        "state_size": 16,
        "num_hidden_layers": 32,
        INNER: None,
        "time_step_rank": AUTO,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }
    """Default values that these families share."""

    def mixer_spec(self, config: Mapping[str, Any], activation: Activation) -> str:
        # the channels precede those that follow from the columns of the model
        inner = config["expand"] * config["hidden_size"] if config[INNER] is None else config[INNER]
        eps = {"norm_eps": config[self.norm_eps_key]} if self.norm_eps_key else {}
        return KEYS.spec(config, inner, activation, {"norm": self.norm, **eps} if eps else {})

    def mixer_config(self, shape: Shape, mixer: Mamba) -> dict[str, Any]:
        sizes = MambaSizes.of(mixer)
        must, came = (
            f"a {self.model_type} requires a mixer with variant.norm={self.norm}",
            f"got {sizes.variant.norm}",
        )
        need(sizes.variant.norm == self.norm, must, came, "use save_pretrained instead")
        return {
            **KEYS.config(sizes),
            KEYS.expand: max(1, sizes.inner // shape.width),
            INNER: sizes.inner,
            ACTIVATION: activation_name(sizes.variant.activation),
            **({self.norm_eps_key: sizes.variant.norm_eps} if self.norm_eps_key else {}),
        }

    def mixer_rules(self, mixer: Mamba, there: str, here: str) -> Sequence[TensorRule]:
        return mamba_rules(mixer.variant, there, here)
