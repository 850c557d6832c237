"""Layers of Mamba-2 in checkpoints: their settings, which families name differently, and their tensors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ordinate.core.checks import need, shown
from ordinate.mixers._mamba2_options import Mamba2Options
from ordinate.mixers.mamba2 import Mamba2
from ordinate.ops.activation import Activation
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.grouped_rows import ChannelFilters

# the tag of numbers that JSON does not have, in files of transformers 5
FLOAT = "__float__"
LIMITS = "time_step_limit"
"""The key of the smallest and the largest step size."""
AUTO = "auto"
"""The value of the channels of a head that follow from the other sizes."""


@dataclass(frozen=True)
class Mamba2Sizes:
    """Sizes and options of a layer of Mamba-2.

    Args:
        heads: heads.
        head_dim: channels of a head.
        groups: groups of heads.
        states: states of each channel.
        taps: tokens that the short convolution spans.
        variant: its options.
    """

    heads: int
    head_dim: int
    groups: int
    states: int
    taps: int
    variant: Mamba2Options

    @classmethod
    def of(cls, mixer: Mamba2) -> "Mamba2Sizes":
        """Return those of a mixer."""
        inner, states, _ = mixer.widths
        taps = mixer.convolution.weight.shape[1]
        return cls(mixer.heads, inner // mixer.heads, mixer.groups, states // mixer.groups, taps, mixer.variant)


Limits = tuple[float, float | None]
"""The smallest and the largest step size; None: no limit."""


@dataclass(frozen=True)
class Mamba2Keys:
    """The keys of config.json for the settings of a layer of Mamba-2.

    Args:
        heads: of the heads.
        head_dim: of the channels of a head, which may be `auto` where there is `expand`.
        groups: of the groups of heads.
        states: of the states of each channel.
        taps: of the tokens that the short convolution spans.
        bias: of whether both projections have biases.
        convolution_bias: of whether the short convolution has one.
        expand: of the channels of all heads together, for each column of the model; None: there is none.
    """

    heads: str
    head_dim: str
    groups: str
    states: str
    taps: str
    bias: str
    convolution_bias: str
    expand: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The keys of config.json that are given."""
        named = (getattr(self, field.name) for field in fields(self))
        return frozenset(name for name in named if name is not None)

    def spec(self, config: Mapping[str, Any], activation: Activation, eps: float, limits: Limits) -> str:
        """Return the mixer of these settings.

        Args:
            config: the settings of the checkpoint.
            activation: function behind the short convolution.
            eps: epsilon of its norm.
            limits: limits of the step size.

        Raises:
            ValueError: sizes that do not fit.
        """
        width, heads, channels = config["hidden_size"], config[self.heads], self._channels(config)
        groups = config[self.groups]
        must, came = f"{self.groups} must divide {self.heads}", f"got {groups} and {heads}"
        need(groups > 0 and heads % groups == 0, must, came, "correct it")
        times, rest = divmod(heads * channels, width)
        least, largest = limits
        options = {
            **({"variant.inner": heads * channels} if rest else {"expand": times}),
            "head_dim": channels,
            "states": config[self.states],
            "groups": groups,
            "taps": config[self.taps],
            "variant.bias": str(bool(config[self.bias])).lower(),
            "variant.convolution_bias": str(bool(config[self.convolution_bias])).lower(),
            "variant.norm_eps": eps,
            **({"variant.least_step": least} if least else {}),
            **({} if largest is None else {"variant.largest_step": largest}),
            **({} if activation == "silu" else {"variant.activation": activation}),
        }
        return "mamba2:" + ",".join(f"{name}={value}" for name, value in options.items())

    def config(self, sizes: Mamba2Sizes, width: int) -> dict[str, Any]:
        """Return the config.json keys of a mixer in a model with this number of columns."""
        variant, (times, rest) = sizes.variant, divmod(sizes.heads * sizes.head_dim, width)
        must, came = "all heads together must be a multiple of the model's columns", f"got {sizes} for {width}"
        need(self.expand is None or not rest, must, came, "use save_pretrained instead")
        return {
            self.heads: sizes.heads,
            self.head_dim: sizes.head_dim,
            **({} if self.expand is None else {self.expand: times}),
            self.states: sizes.states,
            self.groups: sizes.groups,
            self.taps: sizes.taps,
            self.bias: variant.bias,
            self.convolution_bias: variant.convolution_bias,
        }

    def _channels(self, config: Mapping[str, Any]) -> int:
        """Return the channels of a head; raise a ValueError unless they fit."""
        heads, channels = config[self.heads], config[self.head_dim]
        inner = heads * channels if self.expand is None else config[self.expand] * config["hidden_size"]
        if channels == AUTO and self.expand is not None:
            channels = inner // heads
        must, came = f"{self.head_dim} must be a whole number or {AUTO!r}", f"got {shown(channels)}"
        need(isinstance(channels, int), must, came, "correct it, or leave it out")
        must = f"{self.heads} x {self.head_dim} must be {self.expand} x hidden_size"
        need(heads * channels == inner, must, f"got {heads} x {channels} and {inner}", "correct it")
        return channels


def mamba2_rules(variant: Mamba2Options, there: str, here: str) -> Sequence[TensorRule]:
    """Return the tensor mappings of a mixer.

    Args:
        variant: its options.
        there: its name in the checkpoint.
        here: its name in our model.
    """
    named = {"decay.log_rate": "A_log", "decay.bias": "dt_bias", "skip": "D", "norm_scale": "norm.weight"}
    if not variant.norm:
        del named["norm_scale"]
    if variant.convolution_bias:
        named["convolution.bias"] = "conv1d.bias"
    return [
        *linear_rules(f"{here}.project", f"{there}.in_proj", bias=variant.bias),
        *linear_rules(f"{here}.out", f"{there}.out_proj", bias=variant.bias),
        ChannelFilters(f"{here}.convolution.weight", (f"{there}.conv1d.weight",)),
        *(TensorRule(f"{here}.{ours}", (f"{there}.{name}",)) for ours, name in named.items()),
    ]


def step_limits(given: Any) -> Limits:
    """Return the limits of the step size that config.json has."""
    if given is None:
        return 0.0, None
    numbers = [math.inf if x == {FLOAT: "Infinity"} else x for x in given]
    right = len(numbers) == 2 and all(isinstance(x, int | float) for x in numbers)
    least, largest = numbers if right else (math.nan, math.nan)
    need(
        largest >= 0 and least < math.inf,
        f"{LIMITS} must be two numbers, of which the second is not negative",
        f"got {shown(given)}",
        "correct it, or leave it out",
    )
    # a step above the second number becomes that, whatever the first
    return max(0.0, float(min(least, largest))), None if largest == math.inf else float(largest)


def limit_config(variant: Mamba2Options) -> dict[str, Any]:
    """Return the config.json key of the limits of the step size."""
    largest = {FLOAT: "Infinity"} if variant.largest_step is None else variant.largest_step
    return {LIMITS: [variant.least_step, largest]}
