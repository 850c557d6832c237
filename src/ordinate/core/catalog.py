"""Find the classes of a kind by name, parse `name:option=value`, bind constructor options.

A new file in a package of Ordinate adds its class; there is no list to edit. Installed packages add classes to some
of them by entry points. Any other class is named by its module: `my_schemes:Spiral`.
"""

import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import Any, TypeVar, get_args, get_origin

from ordinate.core import class_reference
from ordinate.core.checks import need, need_known, plain_number, shown
from ordinate.core.option_values import describe_kind, read_value

Member = TypeVar("Member")
ENTRY_POINT_GROUPS: Mapping[str, str] = {
    "ordinate.schemes": "ordinate.schemes",
    "ordinate.schemes.spectra": "ordinate.spectra",
    "ordinate.mixers": "ordinate.mixers",
    "ordinate.data.tasks": "ordinate.tasks",
    "ordinate.probing.probes": "ordinate.probes",
}
"""The packages to which installed packages can add members, with the group of their entry points."""
# largest whole number of an option: no table is longer, and no model has longer inputs
LARGEST = 1 << 24
# the one option whose value is no size
SEED = "seed"


def names(package: str) -> list[str]:
    """Return the sorted names of all members of a package, those of installed packages included; imports none."""
    return sorted({*own_names(package), *_added(package)})


def own_names(package: str) -> list[str]:
    """Return the sorted names of the member modules of a package, given by dotted name, without importing them."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise ValueError(f"a catalog needs an importable package; got {shown(package)}; give its dotted name")
    found = pkgutil.iter_modules(spec.submodule_search_locations)
    return sorted(module.name for module in found if not (module.ispkg or module.name.startswith("_")))


def origin(package: str, name: str) -> str | None:
    """Return the installed package that a member comes from, with its version; None: Ordinate's own."""
    point = None if _is_own(package, name) else _added(package).get(name)
    return None if point is None else class_reference.origin(point)


def load(package: str, kind: type[Member], name: str) -> type[Member]:
    """Import a member and return its class.

    Args:
        package: dotted name of the package of Ordinate's own members.
        kind: the base class of the members.
        name: a module of the package, which defines one subclass of `kind`; an entry point of an installed package;
            or `module:Class`, whose module is imported.

    Raises:
        ValueError: a name that is no text, as a file may hold; no such member (the closest name is suggested), or not
            exactly one subclass in its module.
    """
    what = kind.__name__.lower()
    if not isinstance(name, str):
        there = ", ".join(names(package))
        raise ValueError(f"the name of a {what} must be a text; got {shown(name)}; choose one of: {there}")
    if class_reference.is_reference(name):
        return class_reference.load_reference(name, kind)
    if not _is_own(package, name):
        added = _added(package)
        need_known(what, name, [*own_names(package), *added])
        return class_reference.load_plugin(added[name], kind)
    module = import_module(f"{package}.{name}")
    members = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.__name__
    ]
    if len(members) != 1:
        came = ", ".join(member.__name__ for member in members) or "none"
        raise ValueError(
            f"a member file must define exactly one {kind.__name__}; {module.__name__} defines {came}; split it"
        )
    return members[0]


def _is_own(package: str, name: str) -> bool:
    """Return whether a package has a member module of this name: one file is looked for, no folder is listed."""
    if name.startswith("_") or not name.isidentifier():
        return False
    spec = find_spec(f"{package}.{name}")
    return spec is not None and spec.submodule_search_locations is None


def _added(package: str) -> dict[str, EntryPoint]:
    """Return the members that installed packages add to a package."""
    return class_reference.plugins(ENTRY_POINT_GROUPS[package]) if package in ENTRY_POINT_GROUPS else {}


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Parse `name` or `name:option=value,option=value` into the name and a dict of options.

    The name may be that of a class outside of Ordinate: `my_schemes:Spiral:turns=3`.

    An option whose value is itself a registered class is given by name; its own options use dotted keys:
    `rope:spectrum=linear,spectrum.factor=4`.
    """
    reference = class_reference.REFERENCE.match(text)
    name, rest = (reference[0], text[reference.end() + 1 :]) if reference else text.partition(":")[::2]
    found: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        need(
            bool(key and equals and value),
            "options must be written name=value",
            f"got {shown(part)} in {shown(text)}",
            "write for example rope:theta=500000,layout=interleaved, and a class as my_schemes:Spiral",
        )
        outer, dot, inner = key.partition(".")
        target, slot = found, outer
        if dot:
            if not isinstance(found.get(outer), dict):
                found[outer] = {"name": found[outer]} if outer in found else {}
            target, slot = found[outer], inner
        need(
            slot not in target,
            "an option must be given only once",
            f"got {shown(key)} twice in {shown(text)}",
            "drop one",
        )
        target[slot] = value
    return name, found


def options(member: type) -> dict[str, inspect.Parameter]:
    """Return the keyword-only parameters of a constructor: the options of a registered class."""
    try:
        # modules with `from __future__ import annotations` have texts for annotations
        signature = inspect.signature(member, eval_str=True)
    except NameError:
        signature = inspect.signature(member)
    parameters = signature.parameters.values()
    return {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def bind(member: type, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments for a constructor: validated options, and model sizes matched by parameter name.

    Strings are converted to the annotated type: "5e5" to a float, "1;2" to a list.

    Args:
        member: the class to construct.
        given: options by name, as the user wrote them.
        sizes: sizes of the surrounding model (width, heads, ...); only those that the constructor takes are used.

    Raises:
        ValueError: an unknown option (the closest is suggested), a value of the wrong type, or a missing size.
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
    """Validate options against the constructor's signature and convert each to its annotated type."""
    known = options(member)
    for name in given:
        need_known(f"option of {member.__name__}", name, known)
    return {name: _read(member, known[name], value) for name, value in given.items()}


def check_options(member: type, given: Mapping[str, Any]) -> None:
    """Raise a ValueError unless each option has its annotated type already (strict: strings are not converted)."""
    for name, option in options(member).items():
        if name in given and option.annotation is not option.empty:
            _read(member, option, given[name], strict=True)


def checked(build: Callable[..., None], keep: Sequence[str]) -> Callable[..., None]:
    """Wrap `__init__` so that it rejects options of another type than annotated; numbers of NumPy become Python's.

    The instance keeps its arguments, as `parts_given` and `options_given`.

    Args:
        build: the constructor.
        keep: options stored as attributes of the same name, unless the constructor has set them.
    """
    defaults = {name: option.default for name, option in inspect.signature(build).parameters.items()}

    @wraps(build)
    def constructor(self: Any, *parts: Any, **given: Any) -> None:
        given = {name: plain_number(value) for name, value in given.items()}
        for name, value in given.items():
            # before anything of this size is made
            if isinstance(value, int) and name != SEED and not -LARGEST <= value <= LARGEST:
                _check_size(f"{name} of {type(self).__name__}", value)
        try:
            build(self, *parts, **given)
        except Exception as error:
            # a ValueError explains itself; any other exception is probably a consequence of a mistyped option,
            # so the type check goes first and replaces it
            if not isinstance(error, ValueError):
                check_options(type(self), given)
            raise
        check_options(type(self), given)
        for name in keep:
            value = given.get(name, defaults.get(name))
            if value not in (None, inspect.Parameter.empty) and not hasattr(self, name):
                setattr(self, name, value)
        self.parts_given, self.options_given = parts, given

    return constructor


def describe_options(member: Any) -> str:
    """Describe the options of an instance, for its repr: those given, and defaults other than None and False."""
    given = getattr(member, "options_given", {})
    found = {name: given.get(name, option.default) for name, option in options(type(member)).items()}
    # parts of a model have a repr of their own, below
    told = {name: x for name, x in found.items() if not (x is None or x is False or hasattr(x, "parameters"))}
    return ", ".join(f"{name}={value!r}" for name, value in told.items() if value is not inspect.Parameter.empty)


def _read(member: type, option: inspect.Parameter, value: Any, strict: bool = False) -> Any:
    kinds = [get_origin(kind) for kind in (option.annotation, *get_args(option.annotation))]
    what = f"option {option.name} of {member.__name__}"
    if isinstance(value, str) and not strict and any(kind in (tuple, Sequence) for kind in kinds):
        value = value.split(";")
    try:
        found = read_value(option.annotation, value, strict=strict)
    except ValueError as error:
        wanted = describe_kind(option.annotation)
        raise ValueError(f"{what} must be {wanted}; got {shown(value)}; {str(error)[:200]}") from None
    for number in found if isinstance(found, tuple | list) else (found,):
        if isinstance(number, int) and not strict and option.name != SEED:
            _check_size(what, number)
        if isinstance(number, float) and not strict:
            need(math.isfinite(number), f"{what} must be finite", f"got {number}", "give a number")
    return found


def _check_size(what: str, value: int) -> None:
    need(
        -LARGEST <= value <= LARGEST, f"{what} must be at most {LARGEST}", f"got {shown(value)}", "give a smaller one"
    )
