"""Options of a model that exclude each other, or have no effect without another."""

import math
from collections.abc import Mapping
from typing import Any

from ordinate.core.checks import need, need_fraction, need_positive, need_positive_counts, need_whole, need_window
from ordinate.models.activation import LEARNED
from ordinate.models.feedforward import NO_SCALES
from ordinate.models.norm_kinds import PARAMETRIC

POSITIVE = (
    "hidden", "head_width", "embedding_width", "layer_input_width", "layer_scale", "embedding_scale", "embedding_std",
    "logit_scale", "logit_softcap", "residual_scale",
)  # fmt: skip
"""Numbers that must be above zero, where they are given."""


def check_sizes(shape: Any) -> None:
    """Raise unless the sizes of a shape are numbers that fit."""
    sizes = ("vocabulary", "width", "layers", "heads", "max_length")
    need_positive_counts(**{name: getattr(shape, name) for name in sizes})
    for name in POSITIVE:
        if getattr(shape, name) is not None:
            need_positive(name, getattr(shape, name))
    for name in ("embedding_width", "layer_input_width"):
        if getattr(shape, name) is not None:
            need_whole(name, getattr(shape, name))
    if shape.norm_eps is not None:
        need_fraction("norm_eps", shape.norm_eps)
    need(
        shape.head_width is not None or shape.width % shape.heads == 0,
        "heads must divide width",
        f"got width {shape.width}, heads {shape.heads}",
        "choose heads that do",
    )
    need_fraction("dropout", shape.dropout)
    for window in shape.sliding_windows:
        need_window(window)


def check_choices(shape: Any) -> None:
    """Raise unless the options of a shape are consistent."""
    for name, usual in (("logit_scale", 1.0), ("logit_softcap", None)):
        need(
            getattr(shape, name) == usual or shape.head == "next_token",
            f"{name} has an effect only with head='next_token'",
            f"got {name}={getattr(shape, name)} with head={shape.head!r}",
            "leave it out",
        )
    need(
        not shape.round_embedding_scale or shape.embedding_scale != 1.0,
        "round_embedding_scale has an effect only with an embedding_scale",
        "got embedding_scale=1.0",
        "give one, or leave it out",
    )
    _check_feedforward_scales(shape)
    _check_layer_options(shape)
    need(
        shape.norm in PARAMETRIC or not shape.zero_centred_norm,
        "zero_centred_norm is an option of norms with weights",
        f"got norm={shape.norm!r} with zero_centred_norm=True",
        "give norm='rms' or norm='layer', or leave it out",
    )
    need(
        shape.first_norm or shape.norm_position == "pre",
        "first_norm=False needs pre-norm layers",
        f"got norm_position={shape.norm_position!r} with first_norm=False",
        "leave it out, or give norm_position='pre'",
    )
    need(
        shape.final_norm or shape.layer_norm_positions[-1] != "post",
        "final_norm=False has no effect in post-norm layers, which end with their own norm",
        "got norm_position='post' with final_norm=False",
        "leave it out",
    )
    need(
        shape.blocks == "plain" or shape.norm_position == "pre",
        "reversible blocks need pre-norm layers",
        f"got norm_position={shape.norm_position!r} with blocks={shape.blocks!r}",
        "give norm_position='pre', or plain blocks",
    )


DECODER_OPTIONS: Mapping[str, Any] = {
    "shared_keys": (),
    "wide_layers": (),
    "layer_input_width": None,
    "layer_factors": False,
}
"""The options of a shape that only decoders have, with their defaults."""


def check_no_decoder_options(shape: Any) -> None:
    """Raise unless the shape of another model has no options of decoders only."""
    for name, usual in DECODER_OPTIONS.items():
        came = getattr(shape, name)
        need(came == usual, f"{name} is an option of decoders", f"got {came}", "leave it out")


def _check_layer_options(shape: Any) -> None:
    """Raise unless the options of decoder layers are consistent, and have an effect."""
    given = [name for name, usual in DECODER_OPTIONS.items() if getattr(shape, name) != usual]
    must, came = f"{', '.join(given)} need plain blocks", f"got blocks={shape.blocks!r}"
    need(not given or shape.blocks == "plain", must, came, "leave them out, or give blocks='plain'")
    must, came = "layers that share keys have one mixer", f"got second_mixer={shape.second_mixer!r}"
    need(not shape.shared_keys or shape.second_mixer is None, must, came, "leave one of them out")
    wide, layers = shape.wide_layers, range(shape.layers)
    known = all(isinstance(layer, int) and layer in layers for layer in wide) and len(set(wide)) == len(wide)
    must = f"wide_layers must be different layers from 0 to {layers[-1]}"
    need(known, must, f"got {tuple(wide)}", "correct them, or leave them out")
    options = shape.experts
    fed = shape.feedforward != "none" and not set(wide) & set(shape.mixer_only_layers)
    beside = options is None or (options.shared_hidden is not None and not set(wide) & set(options.dense_layers))
    must = "wide_layers need a feed-forward network, of experts one beside them"
    need(not wide or (fed and beside), must, f"got {tuple(wide)}", "leave them out")
    must = "layer_input_width needs a feedforward without parameters of its own, for its activation function"
    plain = shape.feedforward != "none" and shape.feedforward not in LEARNED
    need(shape.layer_input_width is None or plain, must, f"got {shape.feedforward!r}", "choose another")
    normed = options is not None and options.combined == "normed_sum"
    must = "experts with combined='normed_sum' need norm_position='pre' or 'peri'"
    fits = set(shape.layer_norm_positions) <= {"pre", "peri"} and shape.blocks == "plain"
    need(not normed or fits, must, f"got {shape.norm_position!r}", "choose one of them, or another combination")


def _check_feedforward_scales(shape: Any) -> None:
    """Raise unless the factors of the feed-forward are two, and have an effect."""
    scales = shape.feedforward_scales
    need(
        len(scales) == len(NO_SCALES) and all(map(math.isfinite, scales)),
        "feedforward_scales must be two finite numbers",
        f"got {scales}",
        "leave them out, for 1",
    )
    need(
        scales == NO_SCALES or (shape.feedforward != "none" and shape.experts is None),
        "feedforward_scales need a feedforward in each layer that is no mixture of experts",
        f"got feedforward={shape.feedforward!r} and experts={shape.experts}",
        "leave them out",
    )
