"""Sliding windows in config.json: of every layer, or of the layers that `layer_types` names."""

from collections.abc import Mapping, Sequence
from typing import Any

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape

FULL, SLIDING = "full_attention", "sliding_attention"
"""The types of layers, without a window and with one."""
WINDOW_DEFAULTS: Mapping[str, Any] = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
}
"""Default values of the keys of sliding windows by layer."""


def need_window_size(window: int | None) -> None:
    """Raise a ValueError unless a sliding window, if there is one, has more than one token."""
    must = "sliding_window in config.json must be above 1, or null: for 1, the cache of transformers keeps all tokens"
    need(window is None or window > 1, must, f"got {window}", "correct it, or download the file again")


def need_layer_types(types: Sequence[str]) -> None:
    """Raise a ValueError unless the types of the layers are known."""
    unknown = sorted(set(types) - {FULL, SLIDING})
    must, came = (
        "layer types must be full_attention or sliding_attention",
        f"got layer_types with {', '.join(unknown)}",
    )
    need(not unknown, must, came, "load another checkpoint")


def one_window(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the sliding window that every layer has; None: no window."""
    need_window_size(config["sliding_window"])
    return (config["sliding_window"],)


def one_window_config(model_type: str, shape: Shape, remedy: str = "use save_pretrained instead") -> dict[str, Any]:
    """Return the config.json key of the sliding window that every layer has."""
    must, came = (
        f"a {model_type} must have the same window in every layer",
        f"got sliding_windows={shape.sliding_windows}",
    )
    need(len(set(shape.sliding_windows)) == 1, must, came, remedy)
    return {"sliding_window": shape.sliding_windows[0]}


def layer_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the sliding windows from the `layer_types` of a config.json, or as its other keys imply."""
    window, first = config["sliding_window"] if config["use_sliding_window"] else None, config["max_window_layers"]
    need_window_size(window)
    types, count = config["layer_types"], config["num_hidden_layers"]
    if types is None:
        must = "max_window_layers must be the number of layers without a window, where the others have one"
        need(window is None or first is not None, must, f"got {first}", "set it, or layer_types, in config.json")
        types = [FULL if window is None or layer < first else SLIDING for layer in range(count)]
    need_layer_types(types)
    need(
        window is not None or SLIDING not in types,
        "layer_types with sliding_attention need a sliding_window, and use_sliding_window",
        f"got sliding_window={config['sliding_window']}, use_sliding_window={config['use_sliding_window']}",
        "set both in config.json, or make all layers full_attention",
    )
    windows = tuple(window if kind == SLIDING else None for kind in types)
    return (windows[0],) if len(set(windows)) == 1 else windows


def every_nth_whole(config: Mapping[str, Any], key: str = "sliding_window_pattern") -> dict[str, Any]:
    """Return a config.json with the types of its layers: without layer_types every n-th layer has no window.

    Args:
        config: config.json.
        key: the key of n.
    """
    types, every, count = config["layer_types"], config[key], config["num_hidden_layers"]
    if types is None:
        must = f"{key} must be a whole number above zero, where layer_types is left out"
        need(isinstance(every, int) and every > 0, must, f"got {shown(every)}", "give layer_types in config.json")
        types = [SLIDING if (layer + 1) % every else FULL for layer in range(count)]
    return {**config, "layer_types": types, "use_sliding_window": True, "max_window_layers": None}


def layer_types(shape: Shape) -> dict[str, Any]:
    """Return the config.json keys of sliding windows by layer."""
    sizes = sorted({window for window in shape.layer_windows if window is not None})
    need(
        len(sizes) <= 1, "all sliding windows must have the same size", f"got {sizes}", "use save_pretrained instead"
    )
    return {
        "sliding_window": sizes[0] if sizes else None,
        "use_sliding_window": bool(sizes),
        "layer_types": [FULL if window is None else SLIDING for window in shape.layer_windows],
    }
