"""The contract of a scheme, as checks that anyone can run on a class of their own."""

from importlib import import_module
from types import FunctionType
from typing import Any

from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.testing.case import Case
from ordinate.testing.check import Check, Outcome, outcome

_FOLDER = "ordinate.testing.schemes"


def scheme_checks() -> list[Check[Case]]:
    """Every promise that a scheme makes: each public function of each file of `schemes/` beside this file."""
    modules = [import_module(f"{_FOLDER}.{name}") for name in catalog.names(_FOLDER)]
    return [
        Check(name, value)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def check_scheme(kind: type[Scheme], **options: Any) -> list[Outcome]:
    """Try every promise of the contract out on a scheme class.

    Sizes that the constructor asks for by name are given: those that our models offer (width, heads, scale ...).

    Args:
        kind: the class.
        options: further keywords to construct it with.

    Raises:
        ValueError: an unknown option, or a keyword that nothing gives.
    """
    case = Case(kind, options)
    case.scheme()
    return [outcome(check, case) for check in scheme_checks()]
