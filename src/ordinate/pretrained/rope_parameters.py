"""Convert `rope_parameters` of transformers to a RoPE scheme spec and back."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.core.option_values import is_value_of
from ordinate.models.shape import Shape
from ordinate.schemes.rope import Rope
from ordinate.schemes.spectra._spectrum import Spectrum

TRANSFORMERS_ROPE_TYPES = frozenset({"linear", "dynamic", "yarn", "llama3", "longrope", "proportional"})
"""Types of RoPE frequency scaling that transformers supports, beside `default`."""
TRAINED_LENGTH_TYPES = frozenset({"llama3", "yarn", "longrope"})
"""Types for which transformers completes `original_max_position_embeddings`."""
DEFAULT_THETA = 10_000.0
NUMBERS: Mapping[str, tuple[Any, str]] = {
    "rope_type": (str, "a text"),
    "truncate": (bool | None, "true or false"),
    "original_max_position_embeddings": (float | None, "a whole number"),
    "partial_rotary_factor": (float, "a finite number"),
    **dict.fromkeys(("short_factor", "long_factor"), (list[float], "a list of finite numbers")),
}
"""Types of the values that are not a number or null."""
NONE = "none"
"""The scheme of layers without RoPE."""


def rope_parameters(config: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
    """Return the RoPE settings of a config.json, read as transformers reads them.

    Args:
        config: the settings of the checkpoint; `rope_theta` and `partial_rotary_factor` beside the dictionary apply
            where it has none.
        partial: whether the family rotates a part of each head's channels. The others ignore `partial_rotary_factor`
            unless the frequencies are scaled.
    """
    found = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    return complete_rope_parameters(found, config, partial=partial)


def complete_rope_parameters(
    found: dict[str, Any], config: Mapping[str, Any], *, partial: bool = False
) -> dict[str, Any]:
    """Return the RoPE settings of one layer type, completed with those beside the dictionary."""
    found.setdefault("rope_theta", config.get("rope_theta", DEFAULT_THETA))
    found.setdefault("rope_type", found.pop("type", None) or "default")
    found.pop("type", None)
    kind, must = found["rope_type"], "rope_type must be the name of a type of RoPE"
    need(isinstance(kind, str), must, f"got {shown(kind)}", "correct it, or download the file again")
    if config.get("partial_rotary_factor") is not None:
        found.setdefault("partial_rotary_factor", config["partial_rotary_factor"])
    if found["rope_type"] in TRAINED_LENGTH_TYPES:
        told = [where.get("original_max_position_embeddings") for where in (config, found)]
        whole = [config["max_position_embeddings"]]
        found["original_max_position_embeddings"] = next(x for x in (*told, *whole) if x is not None)
    elif found["rope_type"] == "dynamic":
        # transformers takes max_position_embeddings
        found.pop("original_max_position_embeddings", None)
    # `proportional` is a rotation of the whole head in which some rates are 0
    if not partial and found["rope_type"] == "default":
        found.pop("partial_rotary_factor", None)
    known = {*Spectrum.of_rope_type(kind).hf_fields, "rope_type", "rope_theta", "partial_rotary_factor"}
    # keys of other types have no effect there
    read = {name: value for name, value in found.items() if name in known}
    for name, value in read.items():
        _check_value(name, value)
    return read


def _check_value(name: str, value: Any) -> None:
    """Raise a ValueError unless a value of `rope_parameters` is of the type that transformers reads there."""
    kind, words = NUMBERS.get(name, (float | None, "a finite number"))
    # null is the default of the others
    fits = is_value_of(value, kind) and all(
        not isinstance(one, float) or math.isfinite(one) for one in (value if isinstance(value, list) else [value])
    )
    must = f"{name} of rope_parameters must be {words}"
    need(fits, must, f"got {shown(value)}", "correct it, or download the file again")
    must = f"{name} of rope_parameters must not be negative"
    need(name != "partial_rotary_factor" or value >= 0, must, f"got {value}", "load another checkpoint")


def rope_spec(
    parameters: Mapping[str, Any],
    head_width: int,
    max_length: int,
    *,
    partial: bool = False,
    rotated_width: int | None = None,
) -> str:
    """Return the equivalent scheme spec: "rope:theta=500000.0,spectrum=llama3,spectrum.factor=8.0".

    Args:
        parameters: the RoPE settings, from `rope_parameters`.
        head_width: channels of a head.
        max_length: `max_position_embeddings` [tokens].
        partial: whether the family rotates a part of each head's channels.
        rotated_width: channels of which `partial_rotary_factor` is a share; None: those of a head.

    Raises:
        ValueError: a part of the head for a family that rotates whole heads, or settings that the scheme refuses.
    """
    wide, remedy = head_width if rotated_width is None else rotated_width, "correct it, or download the file again"
    must = "rope_theta of rope_parameters must be a finite number"
    need(parameters.get("rope_theta", DEFAULT_THETA) is not None, must, "got None", remedy)
    if not _rotates(parameters, wide, partial=partial):
        return NONE
    rope = Rope.from_rope_parameters(parameters, head_width=wide, max_length=max_length)
    if rope.spectrum.length_thresholds != ():
        # as transformers does, and not at each query
        rope.spectrum = replace(cast(Any, rope.spectrum), rates_by="sequence")
    options = [f"theta={rope.theta}"]
    if rope.rotary_dim != head_width:
        options.append(f"rotary_dim={rope.rotary_dim}")
    if type(rope.spectrum) is not Spectrum:
        options += [f"spectrum={type(rope.spectrum).__module__.rsplit('.', 1)[-1]}", *_numbers(rope.spectrum)]
    return "rope:" + ",".join(options)


def cut_rope_spec(config: Mapping[str, Any], head_width: int) -> str:
    """Return the scheme spec of a family that cuts the rotated channels out of each head.

    Args:
        config: the settings of the checkpoint.
        head_width: channels of a head.

    Raises:
        ValueError: an odd number of rotated channels, or a type that rotates others: transformers does not run them,
            or makes heads wider.
    """
    parameters = rope_parameters(config, partial=True)
    rotated = _rotated(parameters, head_width)
    whole = parameters["rope_type"] != "proportional" or rotated == head_width
    must = "partial_rotary_factor must give an even number of channels of a head, all of them if proportional"
    came = f"got {rotated} of {head_width} channels, of rope_type {parameters['rope_type']!r}"
    need(whole and rotated % 2 == 0, must, came, "load another checkpoint")
    return rope_spec(parameters, head_width, config["max_position_embeddings"], partial=True)


def interleaved(spec: str) -> str:
    """Return a spec of `rope_spec` for interleaved channel pairs."""
    return spec if spec == NONE else f"{spec},layout=interleaved"


def spec_to_rope_parameters(line: str, head_width: int, *, partial: bool = False) -> dict[str, Any]:
    """Return the `rope_parameters` equivalent to a scheme spec.

    Args:
        line: the spec.
        head_width: channels of a head.
        partial: whether the family rotates a part of each head's channels.

    Raises:
        ValueError: the spec is not a single rope, or one that the family does not have.
    """
    name, options = catalog.parse(line)
    if name == NONE and partial:
        return {"rope_type": "default", "rope_theta": DEFAULT_THETA, "partial_rotary_factor": 0.0}
    need(
        name == "rope",
        "this family requires the scheme rope",
        f"got {shown(line)}",
        "use rope, or save_pretrained instead",
    )
    rope = Rope(**catalog.bind(Rope, options, {"head_width": head_width}))
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
    if rope.rotary_dim != head_width:
        need(
            partial,
            "transformers rotates whole heads in this family",
            f"got rotary_dim={rope.rotary_dim} of {head_width} channels",
            "use the family gpt_neox or gptj, or save_pretrained",
        )
        parameters["partial_rotary_factor"] = _share(rope.rotary_dim, head_width)
    if type(rope.spectrum) is not Spectrum:
        named = rope.spectrum.rope_type in TRANSFORMERS_ROPE_TYPES
        need(
            named,
            "transformers must support the frequency scaling of the scheme",
            f"it has no rope_type for {line!r}",
            "use save_pretrained instead",
        )
        need(
            rope.spectrum.whole_sequence or rope.spectrum.length_thresholds == (),
            "transformers takes the rates of the scheme at the length of the whole sequence",
            f"got the scheme {line!r}, which takes them at each query",
            "give it spectrum.rates_by=sequence, or use save_pretrained",
        )
        back = {own: theirs for theirs, own in rope.spectrum.hf_fields.items()}
        numbers = {name: getattr(rope.spectrum, name) for name in catalog.options(type(rope.spectrum))}
        parameters |= {back[name]: value for name, value in numbers.items() if name in back and value is not None}
        parameters["rope_type"] = rope.spectrum.rope_type
    # tuples become lists, as they would in config.json
    return json.loads(json.dumps(parameters))


def rotating_layers(config: Mapping[str, Any]) -> list[bool]:
    """Return whether each layer has RoPE: no_rope_layers has a one for those that do."""
    count, every, listed = config["num_hidden_layers"], config["no_rope_layer_interval"], config["no_rope_layers"]
    if listed is None:
        return [(layer + 1) % every != 0 for layer in range(count)]
    must, came = "no_rope_layers must have an entry for each layer", f"got {len(listed)} for {count} layers"
    need(len(listed) >= count, must, came, "correct it, or download the file again")
    return [bool(entry) for entry in listed[:count]]


def rotating_layers_config(
    model_type: str, shape: Shape, head_width: int, theta: float
) -> tuple[dict[str, Any], list[bool]]:
    """Return the `rope_parameters` of a model with RoPE in some layers, and whether each layer has it.

    Args:
        model_type: the family.
        shape: hyperparameters.
        head_width: channels of a head.
        theta: `rope_theta` of a model without RoPE.

    Raises:
        ValueError: other schemes, or more than one RoPE.
    """
    entries = [shape.scheme_spec.entries[layer % len(shape.scheme_spec.entries)] for layer in range(shape.layers)]
    ropes = sorted(set(entries) - {NONE})
    need(
        len(ropes) <= 1,
        f"a {model_type} requires one scheme rope, in all layers or in some, and none in the others",
        f"got {shape.scheme_spec}",
        "use save_pretrained instead",
    )
    parameters = spec_to_rope_parameters(ropes[0] if ropes else f"rope:theta={theta}", head_width)
    return parameters, [entry != NONE for entry in entries]


def _rotates(parameters: Mapping[str, Any], head_width: int, *, partial: bool) -> bool:
    """Whether any channels of a head are rotated; raise a ValueError if only a part of them is and must not be."""
    given, kind = parameters.get("partial_rotary_factor"), parameters["rope_type"]
    turning = _rotated(parameters, head_width)
    if kind == "proportional":
        return turning // 2 > 0
    must = "rope_type yarn needs an even number of rotated channels, as partial_rotary_factor or rotary_pct says"
    need(kind != "yarn" or turning % 2 == 0, must, f"got {turning} of {head_width}", "load another checkpoint")
    need(
        partial or turning + turning % 2 == head_width,
        f"rope_type {parameters['rope_type']!r} of this family rotates whole heads, whose head_dim must be even",
        f"got partial_rotary_factor={given} of {head_width} channels, which transformers does not run",
        "load another checkpoint",
    )
    return turning > 0


def _rotated(parameters: Mapping[str, Any], head_width: int) -> int:
    """Return the number of rotated channels of a head: `partial_rotary_factor` of them, rounded down."""
    share = parameters.get("partial_rotary_factor")
    return head_width if share is None else int(head_width * share)


def _share(rotated: int, head_width: int) -> float:
    """Return the `partial_rotary_factor` of this many channels: its product with the width is rounded down."""
    share = rotated / head_width
    return share if int(head_width * share) == rotated else math.nextafter(share, 1.0)


def _numbers(spectrum: Spectrum) -> list[str]:
    """Return the options of a spectrum that differ from their defaults."""
    options = []
    for name, option in catalog.options(type(spectrum)).items():
        value = getattr(spectrum, name)
        if value != option.default and value is not None:
            text = ";".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
            options.append(f"spectrum.{name}={text}")
    return options
