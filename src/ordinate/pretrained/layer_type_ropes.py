"""RoPE by layer type in config.json: one for layers with a sliding window, one for the others."""

from collections.abc import Mapping
from typing import Any

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained.rope_parameters import complete_rope_parameters, rope_spec, spec_to_rope_parameters
from ordinate.pretrained.sliding_windows import FULL, SLIDING


def layer_type_rope(
    config: Mapping[str, Any], kind: str, head_width: int, *, scaled: bool, theta: float | None
) -> str:
    """Return the scheme spec of a layer type.

    Args:
        config: config.json.
        kind: the layer type.
        head_width: channels of a head.
        scaled: whether `rope_scaling` beside `rope_parameters` applies to this type.
        theta: `rope_theta` of this type, where the dictionary has none.
    """
    # transformers completes parameters before it adds to them: a `type` in rope_scaling then has no effect
    usual = {"rope_type": "default"}
    given = usual if config["rope_parameters"] is None else config["rope_parameters"].get(kind)
    must, came = f"rope_parameters of {kind} must be an object, or null", f"got {shown(given)}"
    need(given is None or isinstance(given, Mapping), must, came, "correct it, or download the file again")
    found = dict(usual if given is None else given) | ((config.get("rope_scaling") or {}) if scaled else {})
    if found.get("rope_type") == "default":
        found = {name: found[name] for name in ("rope_type", "rope_theta") if name in found}
    # this key counts beside the dictionary in other families, and has no effect in these
    beside = {**config, "original_max_position_embeddings": None, "rope_theta": theta}
    return rope_spec(complete_rope_parameters(found, beside), head_width, config["max_position_embeddings"])


def partial_layer_type_rope(
    config: Mapping[str, Any], kind: str, head_width: int, usual: Mapping[str, Mapping[str, Any]], share: float
) -> str:
    """Return the scheme spec of a layer type of a family that rotates a part of each head.

    Args:
        config: config.json, with its layer types.
        kind: the layer type.
        head_width: channels of a head.
        usual: `rope_parameters` of a config.json without them.
        share: `partial_rotary_factor` of a dictionary without one, where the frequencies are not scaled.
    """
    every = usual if config["rope_parameters"] is None else config["rope_parameters"]
    found = {one: _object_of(every, one) for one in sorted({kind, *config["layer_types"]})}
    types = {one: given.get("rope_type") or given.get("type") or "default" for one, given in found.items()}
    # where one type is scaled, transformers completes all of them with the keys beside the dictionary
    scaled = any(named != "default" for named in types.values())
    beside = {name: config.get(name) if scaled else None for name in ("rope_theta", "partial_rotary_factor")}
    own = {name: value for name, value in beside.items() if value is not None} | dict(found[kind])
    must, came = f"rope_parameters of {kind} must have a rope_theta", f"got {shown(found[kind])}"
    need(own.get("rope_theta") is not None, must, came, "correct it, or download the file again")
    own.setdefault("partial_rotary_factor", share if types[kind] == "default" else 1.0)
    plain = {"max_position_embeddings": config["max_position_embeddings"]}
    parameters = complete_rope_parameters(own, plain, partial=True)
    return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)


def layer_type_ropes_config(
    model_type: str,
    shape: Shape,
    head_width: int,
    thetas: Mapping[str, float],
    *,
    partial: bool = False,
    full_head_width: int | None = None,
) -> dict[str, Any]:
    """Return the `rope_parameters` and the `layer_types` of a model.

    Args:
        model_type: the family.
        shape: hyperparameters.
        head_width: channels of a head.
        thetas: `rope_theta` of types of layers that the model does not have.
        partial: whether the family rotates a part of each head's channels.
        full_head_width: channels of a head of layers without a window; None: as of the others.

    Raises:
        ValueError: windows of several sizes, or layers of one type with several schemes.
    """
    plan, kinds = shape.scheme_spec.entries, [FULL if size is None else SLIDING for size in shape.layer_windows]
    sizes = {window for window in shape.layer_windows if window is not None}
    turns = {(kind, plan[layer % len(plan)]) for layer, kind in enumerate(kinds)}
    need(
        len(sizes) <= 1 and len(turns) == len(set(kinds)),
        f"a {model_type} must have one window size, one rope for windowed and one for global layers",
        f"got windows of {sorted(sizes)} and {sorted(turns)}",
        "use save_pretrained instead",
    )
    usual = {(kind, f"rope:theta={theta}") for kind, theta in thetas.items() if kind not in kinds}
    # without a factor, it is another one there
    whole = {"partial_rotary_factor": 1.0} if partial else {}
    widths = {SLIDING: head_width, FULL: head_width if full_head_width is None else full_head_width}
    ropes = {
        kind: whole | spec_to_rope_parameters(line, widths[kind], partial=partial) for kind, line in turns | usual
    }
    return {"layer_types": kinds, "rope_parameters": ropes}


def _object_of(every: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the parameters of a layer type; raise a ValueError unless they are an object."""
    given = every.get(kind)
    if not isinstance(given, Mapping):
        must = f"rope_parameters of {kind} must be an object"
        raise ValueError(f"{must}; got {shown(given)}; correct it, or download the file again")
    return given
