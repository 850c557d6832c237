"""The rope of a published model, said as a line of our own and back."""

import json
from collections.abc import Mapping
from typing import Any

from ordinate import catalog
from ordinate.checks import need
from ordinate.schemes.rope import Rope
from ordinate.spectrum import Spectrum

THEIRS = frozenset({"linear", "dynamic", "yarn", "llama3", "longrope", "proportional"})
"""The spectra that transformers has a name for, beside the plain one."""


def rope_parameters(config: Mapping[str, Any], theta: float = 10_000.0) -> dict[str, Any]:
    """What a config.json says of its rotation, in the words of today."""
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    found.setdefault("rope_theta", config.get("rope_theta", theta))
    if "type" in found:
        found.setdefault("rope_type", found.pop("type"))
    if config.get("partial_rotary_factor") is not None:
        found.setdefault("partial_rotary_factor", config["partial_rotary_factor"])
    return found


def rope_line(parameters: Mapping[str, Any], head_width: int, max_length: int, layout: str = "half") -> str:
    """The line of schemes that says the same: "rope:theta=500000.0,spectrum=llama3,spectrum.factor=8.0"."""
    rope = Rope.of(parameters, head_width=head_width, max_length=max_length)
    said = [f"theta={rope.theta}"]
    if rope.rotated != head_width:
        said.append(f"rotated={rope.rotated}")
    if layout != "half":
        said.append(f"layout={layout}")
    if type(rope.spectrum) is not Spectrum:
        said += [f"spectrum={type(rope.spectrum).__module__.rsplit('.', 1)[-1]}", *_numbers(rope.spectrum)]
    return "rope:" + ",".join(said)


def parameters_of(line: str, head_width: int) -> dict[str, Any]:
    """The `rope_parameters` that say the same as a line of schemes.

    Raises:
        ValueError: a line of anything but one rope.
    """
    name, options = catalog.parse(line)
    need(name == "rope", "models of this family rotate", f"got {line!r}", "give a rope, or save it as our own")
    rope = Rope(**catalog.bind(Rope, options, {"head_width": head_width}))
    said: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
    if rope.rotated != head_width:
        said["partial_rotary_factor"] = rope.rotated / head_width
    if type(rope.spectrum) is not Spectrum:
        named = rope.spectrum.rope_type in THEIRS
        need(named, "transformers knows the spectrum", f"it has no name for that of {line!r}", "save it as our own")
        back = {own: theirs for theirs, own in rope.spectrum.fields.items()}
        numbers = {name: getattr(rope.spectrum, name) for name in catalog.options(type(rope.spectrum))}
        said |= {back[name]: value for name, value in numbers.items() if name in back and value is not None}
        said["rope_type"] = rope.spectrum.rope_type
    return json.loads(json.dumps(said))


def _numbers(spectrum: Spectrum) -> list[str]:
    """The numbers of a spectrum that are not as they would be anyway."""
    said = []
    for name, option in catalog.options(type(spectrum)).items():
        value = getattr(spectrum, name)
        if value != option.default and value is not None:
            text = ";".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
            said.append(f"spectrum.{name}={text}")
    return said
