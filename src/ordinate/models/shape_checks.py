"""Options of a model that exclude each other, or have no effect without another."""

import math
from typing import Any

from ordinate.core.checks import need
from ordinate.models.feedforward import NO_SCALES
from ordinate.models.norm_kinds import PARAMETRIC


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
