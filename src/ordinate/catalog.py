"""Find the members of a folder by file name, and bind their options: there is no list to edit."""

import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from ordinate.checks import need, need_known

Member = TypeVar("Member")


def names(package: str) -> list[str]:
    """Every member file of the package with this dotted name, sorted; nothing of it is imported."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise ValueError(f"a catalog needs a package; got {package!r}; give the dotted name of a folder")
    found = pkgutil.iter_modules(spec.submodule_search_locations)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def load(package: str, kind: type[Member], name: str) -> type[Member]:
    """The one subclass of `kind` that the file `name` of this package defines.

    Raises:
        ValueError: no such file (the nearest name is suggested), or not exactly one member in it.
    """
    need_known(kind.__name__.lower(), name, names(package))
    module = import_module(f"{package}.{name}")
    members = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.__name__
    ]
    if len(members) != 1:
        came = ", ".join(member.__name__ for member in members) or "none"
        raise ValueError(
            f"a member file defines exactly one {kind.__name__}; {module.__name__} defines {came}; split it"
        )
    return members[0]


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of a member written as `name` or `name:option=value,option=value`.

    An option that is a member itself is written by its name, and its own options after a dot:
    `rope:spectrum=linear,spectrum.factor=4`.
    """
    name, _, rest = text.partition(":")
    found: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        need(
            bool(key and equals and value),
            "an option is written name=value",
            f"got {part!r} in {text!r}",
            "for example rope:theta=500000,layout=interleaved",
        )
        outer, dot, inner = key.partition(".")
        place, slot = found, outer
        if dot:
            if not isinstance(found.get(outer), dict):
                found[outer] = {"name": found[outer]} if outer in found else {}
            place, slot = found[outer], inner
        need(slot not in place, "an option is given once", f"got {key!r} twice in {text!r}", "drop one")
        place[slot] = value
    return name, found


def options(member: type) -> dict[str, inspect.Parameter]:
    """The constructor's keywords, which are the options of a member."""
    parameters = inspect.signature(member).parameters.values()
    return {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def bind(member: type, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords to construct `member` with: the options given, checked, and the sizes it asks for by name.

    A text value is read as the type that the constructor declares, so "5e5" serves for a float, "1;2" for a list.

    Args:
        member: the class to construct.
        given: options by name, as a person wrote them.
        sizes: what the surrounding model knows (width, heads, ...); only the ones asked for are used.

    Raises:
        ValueError: an unknown option (the nearest is named), a value of the wrong type, or a missing size.
    """
    known = options(member)
    bound = {name: sizes[name] for name in known if name in sizes} | read_options(member, given)
    missing = [name for name, option in known.items() if option.default is option.empty and name not in bound]
    if missing:
        raise ValueError(
            f"{member.__name__} needs {', '.join(missing)}; got {', '.join(bound) or 'nothing'}; give each by keyword"
        )
    return bound


def read_options(member: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options given, each known to the constructor and read as the type that it declares."""
    known = options(member)
    for name in given:
        need_known(f"option of {member.__name__}", name, known)
    return {name: _read(member, known[name], value) for name, value in given.items()}


def check_options(member: type, given: Mapping[str, Any]) -> None:
    """Raise a ValueError unless each option given to the constructor is of the type that it declares, as it is."""
    for name, option in options(member).items():
        if name in given and option.annotation is not option.empty:
            _read(member, option, given[name], strict=True)


def checked(build: Callable[..., None], keep: Sequence[str]) -> Callable[..., None]:
    """A constructor that refuses options of other types than it declares, whoever calls it.

    Args:
        build: the constructor.
        keep: options that the instance keeps under their names, unless the constructor has done so.
    """

    @wraps(build)
    def constructor(self: Any, *parts: Any, **given: Any) -> None:
        try:
            build(self, *parts, **given)
        except Exception as error:
            # a ValueError names its reason; behind any other stands a value of another type than declared
            if not isinstance(error, ValueError):
                check_options(type(self), given)
            raise
        check_options(type(self), given)
        for name in keep:
            if given.get(name) is not None and not hasattr(self, name):
                setattr(self, name, given[name])

    return constructor


def _read(member: type, option: inspect.Parameter, value: Any, strict: bool = False) -> Any:
    kinds = [get_origin(kind) for kind in (option.annotation, *get_args(option.annotation))]
    if isinstance(value, str) and not strict and any(kind in (tuple, Sequence) for kind in kinds):
        value = value.split(";")
    try:
        return TypeAdapter(option.annotation).validate_python(value, strict=strict)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        wanted = option.annotation.__name__ if isinstance(option.annotation, type) else str(option.annotation)
        raise ValueError(
            f"option {option.name} of {member.__name__} must be {wanted}; got {value!r}; {problem.lower()}"
        ) from None
