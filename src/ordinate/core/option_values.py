"""Values of options: converted to the annotated type, or checked against it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from ordinate.core.checks import need, need_known, plain_number, shown

TRUE, FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class WrongTypeError(ValueError):
    """A value that is not of the annotated type; the message says what to give."""


def read_value(kind: Any, value: Any, *, strict: bool = False) -> Any:
    """Return a value as the type of an annotation.

    Texts are converted ("5e5" to a float, "true" to a bool, "1;2" to several values), lists to tuples, and
    dictionaries to dataclasses. A class with a classmethod `parse` reads its values itself. Of a union, the first
    type that the value has is taken, or else the first that it can be converted to.

    Args:
        kind: the annotation; classes that are not listed here accept their instances only.
        value: the value.
        strict: convert nothing; an int counts as a float.

    Raises:
        ValueError: a value of another type.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, str):
        # an annotation that could not be evaluated
        return value
    if origin in (Union, UnionType):
        return _read_union(parts, value, strict)
    if origin is Literal:
        return _accepted(
            value in [x for x in parts if type(x) is type(value)], value, f"give one of {_listed(parts)}"
        )
    if kind in SCALARS:
        return SCALARS[kind](value, strict)
    if hasattr(kind, "parse"):
        return kind.parse(value)
    if is_dataclass(kind) and isinstance(value, Mapping) and not strict:
        return _read_dataclass(kind, value)
    if (origin or kind) in (tuple, list, Sequence):
        return _read_sequence(origin or kind, parts, value, strict)
    if (origin or kind) in (dict, Mapping):
        return _read_mapping(parts, value, strict)
    return _accepted(isinstance(value, origin or kind), value, f"give {_name(origin or kind)}")


def is_value_of(value: Any, kind: Any) -> bool:
    """Whether a value has the type of an annotation, without conversion; an int counts as a float."""
    try:
        read_value(kind, value, strict=True)
    except ValueError:
        return False
    return True


def normalise_fields(options: Any) -> None:
    """Set the fields of a dataclass to plain values: Python's numbers for NumPy's, tuples for lists.

    Raises:
        TypeError: a truth value for a number, which Python counts as one, or no tuple where only one fits; names the
            field.
        ValueError: a whole number that a tensor cannot hold.
    """
    for name, kind in get_type_hints(type(options)).items():
        if get_origin(kind) is ClassVar or not hasattr(options, name):
            continue
        value, kinds = plain_number(getattr(options, name)), {kind, *get_args(kind)}
        if kinds & {int, float} and bool not in kinds and isinstance(value, bool):
            raise TypeError(f"{name} must be a number; got {value}; give one")
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(f"{name} must be below 2^63; got {shown(value)}; give a smaller number")
        if tuple in map(get_origin, kinds):
            value = _read_tuple(name, kind, as_tuples(value))
        object.__setattr__(options, name, value)


def as_tuples(value: Any) -> Any:
    """Return a value with tuples in place of its lists, which JSON has in place of tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def describe_kind(kind: Any) -> str:
    """Describe an annotation in a message: int, `float | None`."""
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    # without the modules of its names
    return re.sub(r"(?<!['\w])(?:\w+\.)+(?=\w)", "", str(kind))


def _read_tuple(name: str, kind: Any, value: Any) -> Any:
    # choices are for the class itself to check, which suggests the nearest
    choices = {kind, *(part for one in (kind, *get_args(kind)) for part in get_args(one))}
    if Literal in map(get_origin, choices) and (isinstance(value, tuple) or get_origin(kind) is not tuple):
        return value
    try:
        return read_value(kind, value, strict=True)
    except ValueError as error:
        must = f"{name} must be {describe_kind(kind)}"
        raise TypeError(f"{must}; got {shown(value)}; {error}, in a tuple") from None


def _accepted(fits: bool, value: Any, remedy: str) -> Any:
    if not fits:
        raise WrongTypeError(remedy)
    return value


def _read_union(kinds: Sequence[Any], value: Any, strict: bool) -> Any:
    problems = []
    for exact in (True,) if strict else (True, False):
        for kind in kinds:
            try:
                return read_value(kind, value, strict=exact)
            except ValueError as error:
                problems.append(str(error))
    raise WrongTypeError(" or ".join(dict.fromkeys(problem for problem in problems if problem != "give none")))


def _read_none(value: Any, strict: bool) -> None:
    # on a command line, and in the text of a scheme, where the usual value is another
    written = isinstance(value, str) and value.lower() == "none" and not strict
    return _accepted(value is None or written, None, "give none")


def _read_bool(value: Any, strict: bool) -> bool:
    text = value.lower() if isinstance(value, str) and not strict else None
    if text in TRUE or text in FALSE:
        return text in TRUE
    return _accepted(isinstance(value, bool), value, "give true or false")


def _read_int(value: Any, strict: bool) -> int:
    if isinstance(value, str) and not strict:
        try:
            return int(value)
        # not a number, or one of more digits than Python reads
        except ValueError:
            raise WrongTypeError("give a whole number") from None
    if isinstance(value, Real) and not isinstance(value, Integral) and not strict and float(value).is_integer():
        value = int(float(value))
    return int(_accepted(isinstance(value, Integral) and not isinstance(value, bool), value, "give a whole number"))


def _read_float(value: Any, strict: bool) -> float:
    if isinstance(value, str) and not strict:
        try:
            return float(value)
        except ValueError:
            raise WrongTypeError("give a number") from None
    number = _accepted(isinstance(value, Real) and not isinstance(value, bool), value, "give a number")
    try:
        return float(number)
    except OverflowError:
        raise WrongTypeError("give a smaller number") from None


def _read_str(value: Any, strict: bool) -> str:
    return _accepted(isinstance(value, str), value, "give a text")


def _read_path(value: Any, strict: bool) -> Path:
    if isinstance(value, str) and not strict:
        return Path(value)
    return _accepted(isinstance(value, Path), value, "give a path")


SCALARS: Mapping[Any, Callable[[Any, bool], Any]] = {
    NoneType: _read_none,
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
    Path: _read_path,
}
"""Readers of single values: functions of the value and of whether to be strict."""


def _read_sequence(kind: Any, parts: tuple[Any, ...], value: Any, strict: bool) -> Any:
    accepted = (tuple if kind is tuple else list) if strict and kind is not Sequence else (list, tuple)
    if isinstance(value, str) and ";" in value and not strict:
        value = value.split(";")
    _accepted(isinstance(value, accepted), value, "give several values")
    fixed = kind is tuple and bool(parts) and Ellipsis not in parts
    _accepted(not fixed or len(parts) == len(value), value, f"give {len(parts)} values")
    kinds = parts if fixed else (*parts, Any)[:1] * len(value)
    read = [read_value(one, x, strict=strict) for one, x in zip(kinds, value, strict=True)]
    return tuple(read) if kind is tuple or (kind is Sequence and isinstance(value, tuple)) else read


def _read_mapping(parts: tuple[Any, ...], value: Any, strict: bool) -> dict[Any, Any]:
    _accepted(isinstance(value, Mapping), value, "give names and values")
    key, inner = parts or (Any, Any)
    return {read_value(key, name, strict=strict): read_value(inner, x, strict=strict) for name, x in value.items()}


def _read_dataclass(kind: Any, value: Mapping[str, Any]) -> Any:
    types = get_type_hints(kind)
    known = {field.name: types[field.name] for field in fields(kind)}
    for name in value:
        need_known(f"option of {kind.__name__}", name, known)
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    lacking = [name for name in needed if name not in value]
    must = f"options of {kind.__name__} must have {', '.join(needed)}"
    need(not lacking, must, f"{shown(dict(value))} lacks {', '.join(lacking)}", "add what is missing")
    read = {}
    for name, given in value.items():
        try:
            read[name] = read_value(known[name], given)
        except WrongTypeError as error:
            raise WrongTypeError(
                f"{name} must be {describe_kind(known[name])}; got {shown(given)}; {error}"
            ) from None
    return kind(**read)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(repr(value) for value in values)


def _name(kind: Any) -> str:
    name = kind.__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
