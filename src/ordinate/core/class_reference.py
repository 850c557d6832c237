"""Classes outside of Ordinate: named as `module:Class`, or registered by an installed package as entry points."""

import hashlib
import inspect
import os
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from ordinate.core.checks import need

ALLOW_VARIABLE = "ORDINATE_ALLOW"
"""Environment variable: classes, separated by commas, that files may name."""
# a class begins with a capital letter, an option does not: rope:theta=5e5, my_schemes:Spiral:turns=3
REFERENCE = re.compile(r"[A-Za-z_][\w.]*:_*[A-Z]\w*(?![\w=])")
_PLUGIN_NAME = re.compile(r"[a-z]\w*")


def is_reference(name: Any) -> bool:
    """Whether a name, which may come from a file, is of the form `module:Class`."""
    return isinstance(name, str) and REFERENCE.fullmatch(name) is not None


def load_reference(name: str, kind: type) -> type[Any]:
    """Import `module:Class`, which runs the code of the module, and return the class.

    Modules are looked for on the path of Python, then in the current folder.

    Args:
        name: the class.
        kind: the class that it must be a subclass of.

    Raises:
        ValueError: the module cannot be imported, or it has no such class.
    """
    module_name, _, class_name = name.partition(":")
    found = getattr(import_user_module(module_name), class_name, None)
    return need_subclass(found, kind, f"{class_name} in {module_name}")


def need_subclass(found: Any, kind: type, what: str) -> type[Any]:
    """Return a class, if it is a subclass of `kind`."""
    fits = inspect.isclass(found) and issubclass(found, kind)
    need(fits, f"{what} must be a subclass of {kind.__name__}", f"got {found!r}", "name the class")
    return found


def import_user_module(name: str) -> ModuleType:
    """Import a module of the user: installed, or in the current folder.

    Raises:
        ValueError: it cannot be imported.
    """
    dotted = all(part.isidentifier() for part in name.split("."))
    must = "a module must be given by its dotted name, without .py"
    need(dotted, must, f"got {name!r}", "give it as in: import my_schemes")
    # last: a file of the folder must not replace a module of Python or of an installed package
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the module must be importable; {error}; run the command in its folder, or install it"
        ) from None
    # a module may do anything when it is imported, such as exit with code 0
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"the module must be importable; {name} raised {what}; correct it") from None


def references(*texts: str) -> list[str]:
    """Return the classes that specifications name as `module:Class`."""
    return list(dict.fromkeys(name for text in texts for name in REFERENCE.findall(text)))


def need_allowed(where: str, texts: Iterable[str], allow: Sequence[str] = ()) -> None:
    """Raise unless the classes that a file names may be imported.

    A file that somebody else wrote must not decide which code runs. Classes of modules that are imported already may
    be named, and those that the caller allows.

    Args:
        where: the file, for the message.
        texts: the specifications in it.
        allow: classes that may be named, as `module:Class`; besides those in the variable ORDINATE_ALLOW.

    Raises:
        ValueError: a class that is not allowed.
    """
    allowed = {*allow, *(name.strip() for name in os.environ.get(ALLOW_VARIABLE, "").split(","))}
    for name in references(*texts):
        module, _, attribute = name.partition(":")
        need(
            name in allowed or hasattr(sys.modules.get(module), attribute),
            "a class that a file names must be imported or allowed",
            f"{where} names {name}",
            f'if you trust it, import {module} first, or set {ALLOW_VARIABLE}="{name}"',
        )


def source_digest(name: str) -> str:
    """Return the first 8 hex digits of the SHA-256 hash of the source file of `module:Class`, which is imported."""
    module = import_user_module(name.partition(":")[0])
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        # compiled, or typed into an interpreter
        return "unknown"
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def external_classes(texts: Iterable[str]) -> list[str]:
    """Return the classes outside of Ordinate that specifications use, as `module:Class`."""
    texts = list(texts)
    words = {word for text in texts for word in re.findall(r"[a-z]\w*", text)}
    groups = ("schemes", "mixers", "spectra", "tasks")
    named = [point.value for group in groups for name, point in plugins(f"ordinate.{group}").items() if name in words]
    return sorted({*references(*texts), *named})


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages in a group, by name; none is imported.

    Raises:
        ValueError: two packages register one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if _PLUGIN_NAME.fullmatch(point.name) is None:
            came = f"{origin(point)} registers {point.name!r}"
            warnings.warn(f"names of {group} are lower-case identifiers; {came}; it is left out", stacklevel=2)
            continue
        other = found.get(point.name)
        need(
            other is None or other.value == point.value,
            f"a name in {group} must be registered once",
            f"{point.name!r} is registered by {other and origin(other)} and by {origin(point)}",
            "uninstall one of them",
        )
        found[point.name] = point
    return found


def load_plugin(point: EntryPoint, kind: type) -> type[Any]:
    """Import the class of an entry point.

    Raises:
        ValueError: it cannot be imported, or is no subclass of `kind`.
    """
    try:
        found = point.load()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"the class of an installed package must be importable; {point.value} of {origin(point)} raised {what}; "
            "update or uninstall the package"
        ) from None
    return need_subclass(found, kind, f"{point.name} of {origin(point)}")


def origin(point: EntryPoint) -> str:
    """Return the package of an entry point, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a package"
