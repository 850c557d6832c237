"""`ordinate check`: the contract suite on a class of your own."""

import importlib
import inspect
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cyclopts import App

from ordinate.cli.console import SafeConsole
from ordinate.core.checks import need

if TYPE_CHECKING:
    from ordinate.testing import Outcome

app = App(name="check", help="Run the contract suite on a scheme or mixer of your own.")


@app.default
def check(target: str) -> int:
    """Run the contract suite on a scheme or mixer of your own; exits with 1 if a check fails.

    Parameters
    ----------
    target
        The class as module:Class, e.g. my_schemes.spiral:Spiral. The module is imported, which runs its code.
    """
    console = SafeConsole()
    outcomes = _outcomes(target)
    for outcome in outcomes:
        mark = (
            "[dim]skipped[/]"
            if outcome.skipped_reason
            else "[green]passed [/]"
            if outcome.passed
            else "[bold red]FAILED [/]"
        )
        console.print(mark, outcome.name, end="", markup=True)
        details = outcome.skipped_reason or outcome.message
        console.print(f": {details}" if details else "", markup=False, soft_wrap=True)
    need(
        any(not outcome.skipped_reason for outcome in outcomes),
        "at least one check must apply to the class",
        f"of {len(outcomes)} checks none does",
        "override a hook, or declare a form",
    )
    failed = sum(not outcome.passed and not outcome.skipped_reason for outcome in outcomes)
    console.print(f"{len(outcomes)} checks, {failed} failed")
    return 1 if failed else 0


def _outcomes(target: str) -> "list[Outcome]":
    from ordinate.mixers._mixer import Mixer
    from ordinate.schemes._scheme import Scheme
    from ordinate.testing import check_mixer, check_scheme

    module_name, colon, name = target.partition(":")
    need(
        bool(colon and name),
        "a class must be given as module:Class",
        f"got {target!r}",
        "for example my_schemes:Spiral",
    )
    module = _imported(module_name)
    found: Any = getattr(module, name, None)
    kinds = "ordinate.schemes.Scheme or ordinate.mixers.Mixer"
    known = inspect.isclass(found) and issubclass(found, Scheme | Mixer)
    must = f"{name} must be a subclass of {kinds} in {module_name}"
    need(known, must, f"got {found!r}", "name the class")
    try:
        return check_scheme(found) if issubclass(found, Scheme) else check_mixer(found)
    except SystemExit as error:
        raise ValueError(f"the class must not exit; {name} called exit({error.code}); remove it") from None


def _imported(name: str) -> ModuleType:
    """Import a module of the user, from the current folder or installed."""
    dotted = all(part.isidentifier() for part in name.split("."))
    must = "a module must be given by its dotted name, without .py"
    need(dotted, must, f"got {name!r}", "run the command in its folder: ordinate check my_schemes:Spiral")
    # last: a file of the folder must not replace a module of Python or of an installed package
    sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the module must be importable; {error}; run the command in its folder, or install it"
        ) from None
    # a module may do anything when it is imported, such as exit with code 0 before any check
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"the module must be importable; {name} raised {what}; correct it") from None
