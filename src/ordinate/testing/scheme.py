"""Contract test suite of schemes."""

from importlib import import_module
from types import FunctionType
from typing import Any

from ordinate.core import catalog
from ordinate.schemes._scheme import Scheme
from ordinate.testing.case import SchemeCase
from ordinate.testing.check import Check, Outcome, run_check

_FOLDER = "ordinate.testing.schemes"


def scheme_checks() -> list[Check[SchemeCase]]:
    """Return the checks of the contract: each public function of each module in `testing/schemes/`."""
    modules = [import_module(f"{_FOLDER}.{name}") for name in catalog.names(_FOLDER)]
    return [
        Check(name, value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def check_scheme(kind: type[Scheme], **options: Any) -> list[Outcome]:
    """Run all contract checks on a scheme class.

    Sizes that the constructor takes by name are provided: those that Ordinate's models provide (width, heads,
    scale ...).

    Args:
        kind: the class.
        options: further constructor arguments.

    Raises:
        ValueError: an unknown option, or a required argument that is missing.
    """
    case = SchemeCase(kind, options)
    case.scheme()
    return [run_check(check, case) for check in scheme_checks()]
