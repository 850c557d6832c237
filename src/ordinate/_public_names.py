"""Public names of a package, imported on first use: those listed in the `__init__.pyi` beside its `__init__.py`."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

PROBE_PACKAGES = frozenset({"evaluation", "probing", "replications", "report"})
"""Packages of Ordinate whose requirements are those of the extra `probe`; of the others, `study`."""
HUB_PACKAGES = frozenset({"huggingface_hub", "transformers"})


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: dotted name of the package.
        file: its `__init__.py`.
    """
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    # from .module import name as name; from . import module as module
    origins = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }

    # a module that is imported takes the place of a function of its name
    shadowed = [name for name, module in origins.items() if module == name]
    assert not shadowed, f"rename the modules of {shadowed} in {package}: begin them with _"

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        origin = origins[name]
        try:
            found = import_module(f"{package}.{origin or name}")
        except ModuleNotFoundError as error:
            if (error.name or "ordinate").partition(".")[0] == "ordinate":
                raise
            within = {*package.split("."), *(origin or name).split(".")}
            extra = "probe" if PROBE_PACKAGES & within else "study"
            raise missing_package(error, f"{package}.{name}", extra) from error
        value = found if origin is None else getattr(found, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(origins), sorted(origins)


def missing_package(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """Return the error of a package that is not installed, with the line that installs it.

    Args:
        error: the error of its import.
        what: what needs it: a dotted name of Ordinate, or a command.
        extra: the extra that installs all it needs; `hf` does if the missing package is one of Hugging Face's.
    """
    package = (error.name or "a package").partition(".")[0]
    extra = "hf" if package in HUB_PACKAGES else extra
    return ModuleNotFoundError(
        f'{what} needs the package {package}; it is not installed; pip install "ordinate[{extra}]"', name=error.name
    )
