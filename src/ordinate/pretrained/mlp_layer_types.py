"""The kind of each layer's feed-forward in config.json: with experts, or without."""

from collections.abc import Collection, Mapping
from typing import Any

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape

KINDS, SPARSE, DENSE = "mlp_layer_types", "sparse", "dense"
"""The key of the kind of each layer's feed-forward, and its values with experts and without."""


def layers_without_experts(config: Mapping[str, Any], first: int, *, exact: bool = False) -> tuple[int, ...]:
    """Return the layers without experts: those that config.json names, or the first.

    Args:
        config: config.json.
        first: how many they are where it names none.
        exact: whether it must have no more kinds than layers.
    """
    kinds, layers = config[KINDS], config["num_hidden_layers"]
    if kinds is None:
        return tuple(range(min(first, layers)))
    fits = len(kinds) == layers if exact else len(kinds) >= layers
    must, came = f"{KINDS} must have a kind for each of {layers} layers", f"got {shown(kinds)}"
    need(fits, must, came, "load another checkpoint")
    return tuple(layer for layer, kind in enumerate(kinds[:layers]) if kind != SPARSE)


def layer_kinds(shape: Shape, dense: Collection[int]) -> dict[str, Any]:
    """Return the config.json key of a model with these layers without experts."""
    return {KINDS: [DENSE if layer in dense else SPARSE for layer in range(shape.layers)]}
