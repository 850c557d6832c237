"""Mamba-2."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ordinate.core.checks import need, shown
from ordinate.mixers.mamba2 import Mamba2 as Mixer
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.grouped_rows import ChannelFilters

# the tag of numbers that JSON does not have, in files of transformers 5
FLOAT = "__float__"
TABLE, EARLIER = "backbone.embeddings.weight", "backbone.embedding.weight"


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
        "time_step_limit": (0.0, math.inf),
        "pad_token_id": 1,
        "tie_word_embeddings": False,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        _check_sizes(config)
        least, largest = _limits(config["time_step_limit"])
        options = {
            "expand": config["expand"],
            "head_dim": config["head_dim"],
            "states": config["state_size"],
            "groups": config["n_groups"],
            "taps": config["conv_kernel"],
            "variant.bias": str(bool(config["use_bias"])).lower(),
            "variant.convolution_bias": str(bool(config["use_conv_bias"])).lower(),
            "variant.norm_eps": config["layer_norm_epsilon"],
            **({"variant.least_step": least} if least else {}),
            **({} if largest is None else {"variant.largest_step": largest}),
        }
        return Shape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            # the mixer has heads of its own
            heads=1,
            scheme="none",
            mixer="mamba2:" + ",".join(f"{name}={value}" for name, value in options.items()),
            norm_eps=config["layer_norm_epsilon"],
            feedforward="none",
            tie_embeddings=config["tie_word_embeddings"],
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        mixer = _mixer_of(shape)
        variant, (inner, states, _) = mixer.variant, mixer.widths
        need(
            shape.feedforward == "none" and variant.norm_eps == shape.norm_eps,
            "a mamba2 requires feedforward none, and one epsilon of all norms: norm_eps, and variant.norm_eps of the "
            "mixer",
            f"got {shape.feedforward}, {shape.norm_eps} and {variant.norm_eps}",
            "use save_pretrained instead",
        )
        largest = variant.largest_step
        return {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_heads": mixer.heads,
            "head_dim": inner // mixer.heads,
            "expand": inner // shape.width,
            "state_size": states // mixer.groups,
            "n_groups": mixer.groups,
            "conv_kernel": mixer.convolution.weight.shape[1],
            "use_bias": variant.bias,
            "use_conv_bias": variant.convolution_bias,
            "hidden_act": "silu",
            "layer_norm_epsilon": shape.norm_eps,
            "time_step_limit": [variant.least_step, {FLOAT: "Infinity"} if largest is None else largest],
            "tie_word_embeddings": shape.tie_embeddings,
        }

    def stored_name(self, theirs: str, names: Collection[str]) -> str:
        """Return a tensor's name in a checkpoint; the token table of early files has another one."""
        given = [super(Mamba2, self).stored_name(name, names) for name in (theirs, EARLIER)]
        return given[1] if theirs == TABLE and given[0] not in names and given[1] in names else given[0]

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        variant = _mixer_of(shape).variant
        there, here = "backbone.layers.{}.mixer", "blocks.{}.mixer"
        named = {"decay.log_rate": "A_log", "decay.bias": "dt_bias", "skip": "D", "norm_scale": "norm.weight"}
        if variant.convolution_bias:
            named["convolution.bias"] = "conv1d.bias"
        rules = [
            TensorRule("tokens.weight", (TABLE,)),
            *linear_rules("norm", "backbone.norm_f", bias=False),
            *linear_rules("blocks.{}.mixer_norm", "backbone.layers.{}.norm", bias=False),
            *linear_rules(f"{here}.project", f"{there}.in_proj", bias=variant.bias),
            *linear_rules(f"{here}.out", f"{there}.out_proj", bias=variant.bias),
            ChannelFilters(f"{here}.convolution.weight", (f"{there}.conv1d.weight",)),
            *(TensorRule(f"{here}.{ours}", (f"{there}.{name}",)) for ours, name in named.items()),
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


def _check_sizes(config: Mapping[str, Any]) -> None:
    """Raise a ValueError for sizes that do not fit, and for another activation than SiLU."""
    inner, heads, channels = config["expand"] * config["hidden_size"], config["num_heads"], config["head_dim"]
    must, came = (
        "num_heads x head_dim must be expand x hidden_size",
        f"got {heads} x {channels} and {inner}",
    )
    need(heads > 0 and channels is not None and heads * channels == inner, must, came, "correct it")
    groups = config["n_groups"]
    must, came = "n_groups must divide num_heads", f"got {groups} and {heads}"
    need(groups > 0 and heads % groups == 0, must, came, "correct it")
    act = config["hidden_act"]
    must = "a mamba2 is supported with hidden_act='silu' only"
    need(act in ("silu", "swish"), must, f"got {shown(act)}", "load another checkpoint")


def _limits(given: Any) -> tuple[float, float | None]:
    """Return the smallest and the largest step size that config.json has; None: no limit."""
    if given is None:
        return 0.0, None
    numbers = [math.inf if x == {FLOAT: "Infinity"} else x for x in given]
    right = len(numbers) == 2 and all(isinstance(x, int | float) for x in numbers)
    least, largest = numbers if right else (math.nan, math.nan)
    need(
        least <= largest and largest >= 0 and least < math.inf,
        "time_step_limit must be two numbers in order, of which the second is not negative",
        f"got {shown(given)}",
        "correct it, or leave it out",
    )
    return max(0.0, float(least)), None if largest == math.inf else float(largest)
