"""Fill in scheme options that a new scheme specification leaves out, from an existing model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from ordinate.core import catalog
from ordinate.core.checks import need_known, need_positive
from ordinate.core.member_spec import write_member
from ordinate.models.shape import Shape, ShapeType
from ordinate.schemes._spec import SchemeForm, SchemeSpec
from ordinate.schemes.spectra._spectrum import Spectrum


def replace_schemes(
    shape: ShapeType, spec: SchemeForm, *, locations: Sequence[str] | None = None, max_length: int | None = None
) -> ShapeType:
    """Replace the schemes of a shape.

    Args:
        shape: hyperparameters of the existing model.
        spec: scheme specification, see `completed`.
        locations: where to replace schemes, keys of `shape.sides`; None: everywhere except in cross-attention.
        max_length: new maximum input length; None: unchanged [tokens].

    Raises:
        ValueError: an unknown side, scheme, spectrum or option (the nearest is suggested).
    """
    need_positive("max_length", 1 if max_length is None else max_length)
    there = shape.scheme_locations
    chosen = [name for name, side in there.items() if not side.is_cross_attention] if locations is None else locations
    for name in chosen:
        need_known("side", name, there)
    # all sides are written out: a source_scheme of None would follow a change of scheme
    lines = {
        side.shape_field: complete_scheme_options(spec, side.shape, max_length)
        if name in chosen
        else side.shape.scheme
        for name, side in there.items()
    }
    return replace(shape, **lines, max_length=max_length or shape.max_length)


def complete_scheme_options(spec: SchemeForm, shape: Shape, max_length: int | None = None) -> SchemeSpec:
    """Complete a scheme specification with the options of the existing model.

    A scheme that the same layer has already keeps its options, except spectra. Instances stay as they are.

    Args:
        spec: new scheme specification.
        shape: hyperparameters of the existing model.
        max_length: new maximum input length; None: unchanged [tokens].
    """
    old, new = shape.scheme_spec, SchemeSpec.of(spec, shape.bindable_sizes)
    if any(template is not None for template in new.templates):
        return new

    def complete(text: str, layer: int) -> str:
        name, given = catalog.parse(text)
        kind = SchemeSpec.class_named(name)
        known = catalog.options(kind)
        before: dict[str, Any] = {}
        for part in old.split_schemes(layer):
            other, had = catalog.parse(part)
            if other == name:
                before = {key: value for key, value in had.items() if not _is_spectrum(known[key].annotation)}
        spectra = {
            key: _spectrum(value, shape.max_length, max_length)
            for key, value in given.items()
            if key in known and _is_spectrum(known[key].annotation)
        }
        return write_member(name, before | given | spectra)

    return new.map_schemes(complete)


def _spectrum(given: Any, trained: int, longest: int | None) -> dict[str, Any]:
    """Options of a spectrum, with trained length and factor from the model where they are left out."""
    numbers = dict(given) if isinstance(given, dict) else {"name": given}
    known = catalog.options(catalog.load("ordinate.schemes.spectra", Spectrum, numbers["name"]))
    if "trained_length" in known:
        numbers.setdefault("trained_length", trained)
    try:
        Spectrum.parse(numbers)
    except ValueError:
        if longest is None or "factor" not in known or "factor" in numbers:
            raise
        # a spectrum that requires a factor gets the ratio of lengths; others derive it themselves
        numbers["factor"] = longest / trained
    return numbers


def _is_spectrum(annotation: Any) -> bool:
    return Spectrum in (annotation, *get_args(annotation))
