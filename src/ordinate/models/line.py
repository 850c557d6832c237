"""What a line of schemes leaves open, as a model that is made already has it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from ordinate import catalog
from ordinate.checks import need_known, need_positive
from ordinate.models.shape import Own, Shape
from ordinate.recipe import Recipe
from ordinate.scheme import Scheme
from ordinate.spectrum import Spectrum


def with_schemes(shape: Own, line: str, *, sides: Sequence[str] | None = None, max_length: int | None = None) -> Own:
    """The shape with other schemes.

    Args:
        shape: of a model so far.
        line: the line of schemes, see `completed`.
        sides: where they are exchanged, of `shape.sides`; None: wherever one text is read, and not across two.
        max_length: the longest input from now on; None: as before [tokens].

    Raises:
        ValueError: an unknown side, scheme, spectrum or option (the nearest is named).
    """
    need_positive("max_length", 1 if max_length is None else max_length)
    there = shape.sides
    chosen = [name for name, side in there.items() if not side.across] if sides is None else sides
    for name in chosen:
        need_known("side", name, there)
    # a line that stands for two sides is said of each
    lines = {
        side.field: completed(line, side.shape, max_length) if name in chosen else side.shape.scheme
        for name, side in there.items()
    }
    return replace(shape, **lines, max_length=max_length or shape.max_length)


def completed(line: str, shape: Shape, max_length: int | None = None) -> str:
    """The line, with what it leaves open as a model of this shape has it.

    Args:
        line: the new line of schemes.
        shape: of the model so far.
        max_length: the longest input from now on; None: as before [tokens].
    """
    old = Recipe.entries(shape.scheme)

    def complete(text: str, layer: int) -> str:
        name, given = catalog.parse(text)
        kind = catalog.load("ordinate.schemes", Scheme, name)
        known = catalog.options(kind)
        before: dict[str, Any] = {}
        for part in Recipe.singles(old[layer % len(old)]):
            other, had = catalog.parse(part)
            if other == name:
                before = {key: value for key, value in had.items() if not _is_spectrum(known[key].annotation)}
        spectra = {
            key: _spectrum(value, shape.max_length, max_length)
            for key, value in given.items()
            if key in known and _is_spectrum(known[key].annotation)
        }
        return _written(name, before | given | spectra)

    return Recipe.rewritten(line, complete)


def _spectrum(given: Any, trained: int, longest: int | None) -> dict[str, Any]:
    """The numbers of a spectrum, with the lengths of the model where they are left open."""
    numbers = dict(given) if isinstance(given, dict) else {"name": given}
    known = catalog.options(catalog.load("ordinate.spectra", Spectrum, numbers["name"]))
    if "trained_length" in known:
        numbers.setdefault("trained_length", trained)
    try:
        Spectrum.read(numbers)
    except ValueError:
        if longest is None or "factor" not in known or "factor" in numbers:
            raise
        # some stretch by a factor that they are told, others find it themselves
        numbers["factor"] = longest / trained
    return numbers


def _is_spectrum(annotation: Any) -> bool:
    return Spectrum in (annotation, *get_args(annotation))


def _written(name: str, options: dict[str, Any]) -> str:
    said = []
    for key, value in options.items():
        inner = dict(value) if isinstance(value, dict) else {"name": value}
        said.append(f"{key}={inner.pop('name')}")
        said += [f"{key}.{part}={number}" for part, number in inner.items()]
    return f"{name}:{','.join(said)}" if said else name
