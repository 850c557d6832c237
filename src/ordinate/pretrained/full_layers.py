"""Layers without a sliding window whose heads have sizes of their own, and layers that attend to keys of others."""

from collections.abc import Sequence
from dataclasses import dataclass

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape

READERS = "num_kv_shared_layers"
"""The key of how many last layers attend to the keys of earlier ones."""


@dataclass(frozen=True)
class FullLayers:
    """What layers without a window have.

    Args:
        head_width: channels of a head.
        kv_heads: key and value heads.
        same: whether their values are the keys as projected.
    """

    head_width: int
    kv_heads: int
    same: bool


def layer_mixers(mixer: str, shape: Shape, full: FullLayers) -> list[str]:
    """Return the mixer of each layer.

    Args:
        mixer: that of layers with a window.
        shape: hyperparameters, with the windows and the sizes of these layers.
        full: what the other layers have.
    """
    name, _, options = mixer.partition(":")
    keys = shape.heads if shape.kv_heads is None else shape.kv_heads
    own = [
        *([] if full.kv_heads == keys else [f"kv_heads={full.kv_heads}"]),
        options,
        *([] if full.head_width == shape.bindable_sizes["head_width"] else [f"variant.head_width={full.head_width}"]),
        *(["variant.values_of_keys=true"] if full.same else []),
    ]
    without = f"{name}:{','.join(own)}"
    return [without if window is None else mixer for window in shape.layer_windows]


def full_layers_of(shape: Shape) -> FullLayers:
    """Return what the layers without a window of a shape have, by the mixer of the last one."""
    entries = shape.mixer_spec.entries
    options = catalog.parse(entries[(shape.layers - 1) % len(entries)])[1]
    variant = options.get("variant", {})
    keys = shape.heads if shape.kv_heads is None else shape.kv_heads
    width = int(variant.get("head_width", shape.bindable_sizes["head_width"]))
    return FullLayers(width, int(options.get("kv_heads", keys)), variant.get("values_of_keys") == "true")


def shared_keys(types: Sequence[str], readers: int) -> tuple[int, ...]:
    """Return for each layer the layer whose keys it attends to: the last layers to those of the last earlier one.

    Args:
        types: type of each layer.
        readers: how many last layers attend to the keys of earlier ones of their type.

    Raises:
        ValueError: a type without an earlier layer that has keys.
    """
    first = len(types) - readers
    must = f"{READERS} must leave a layer of each type that has keys of its own"
    need(
        readers >= 0 and {*types[: max(first, 0)]} >= {*types},
        must,
        f"got {readers} of {shown(list(types))}",
        "correct it",
    )
    last = {kind: layer for layer, kind in enumerate(types[:first])}
    return tuple(layer if layer < first else last[kind] for layer, kind in enumerate(types))
