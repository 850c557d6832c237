"""Base class of Granite-like decoders with sliding windows and attention sinks."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained.granite_like import GraniteLike
from ordinate.pretrained.rope_parameters import (
    DEFAULT_THETA,
    NONE,
    rope_parameters,
    rope_spec,
    spec_to_rope_parameters,
)
from ordinate.pretrained.sliding_windows import FULL, SLIDING, layer_types, layer_windows

THETAS = "layer_rope_theta"
"""The key of the theta of each layer; 0: it has no RoPE."""
# without layer_types the first layer of so many has no window
EVERY = 4


class GraniteSwaLike(GraniteLike):
    """Granite-like decoders with a window in most layers, attention sinks, and a theta of RoPE for each layer.

    Must: as `LlamaLike`.
    """

    window_defaults: ClassVar[Mapping[str, Any]] = {"sliding_window": 128, "layer_types": None, THETAS: None}
    """Default values of windows and thetas."""
    sinks = True

    def scheme(self, config: Mapping[str, Any], head_width: int) -> str:
        length, layers = config["max_position_embeddings"], config["num_hidden_layers"]
        parameters, thetas = rope_parameters(config), config[THETAS]
        if thetas is None:
            return rope_spec(parameters, head_width, length)
        fits = len(thetas) >= layers and all(isinstance(theta, int | float) and theta >= 0 for theta in thetas)
        must = f"{THETAS} must have a number of at least 0 for each of {layers} layers"
        need(fits, must, f"got {shown(thetas)}", "load another checkpoint")
        turning = (theta and {**parameters, "rope_theta": float(theta)} for theta in thetas[:layers])
        return ",".join(rope_spec(each, head_width, length) if each else NONE for each in turning)

    def scheme_config(self, shape: Shape, head_width: int) -> dict[str, Any]:
        plan = shape.scheme_spec.entries
        found = [
            None if entry == NONE else spec_to_rope_parameters(entry, head_width)
            for entry in (plan[layer % len(plan)] for layer in range(shape.layers))
        ]
        thetas = [0.0 if each is None else each["rope_theta"] for each in found]
        kinds = [each | {"rope_theta": DEFAULT_THETA} for each in found if each is not None]
        must = f"the layers of a {self.model_type} have rope or none, and may differ in its theta only"
        need(all(kind == kinds[0] for kind in kinds), must, f"got {shape.scheme_spec}", "use save_pretrained instead")
        return {"rope_parameters": kinds[0] if kinds else None, THETAS: thetas}

    def windows(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        usual = [SLIDING if layer % EVERY else FULL for layer in range(config["num_hidden_layers"])]
        types = usual if config["layer_types"] is None else config["layer_types"]
        return layer_windows({**config, "layer_types": types, "use_sliding_window": True, "max_window_layers": None})

    def window_config(self, shape: Shape) -> dict[str, Any]:
        found = layer_types(shape)
        # transformers needs a number, even where no layer has a window
        window = found["sliding_window"] or self.window_defaults["sliding_window"]
        return {"sliding_window": window, "layer_types": found["layer_types"]}
