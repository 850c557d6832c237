"""`ordinate check`: the contract suite on a class of your own."""

import importlib
import inspect
import os
import sys
from typing import TYPE_CHECKING

from cyclopts import App
from rich.console import Console

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
    console = Console(highlight=False)
    outcomes = _outcomes(target)
    for outcome in outcomes:
        mark = (
            "[dim]skipped[/]"
            if outcome.skipped_reason
            else "[green]passed [/]"
            if outcome.passed
            else "[bold red]FAILED [/]"
        )
        console.print(mark, outcome.name, end="")
        details = outcome.skipped_reason or outcome.message
        console.print(f": {details}" if details else "", markup=False, soft_wrap=True)
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
    # last: a file of the folder must not replace a module of Python or of an installed package
    sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the module must be importable; {error}; run the command in its folder, or install it"
        ) from None
    found = getattr(module, name, None)
    if inspect.isclass(found) and issubclass(found, Scheme):
        return check_scheme(found)
    if inspect.isclass(found) and issubclass(found, Mixer):
        return check_mixer(found)
    kinds = "ordinate.schemes.Scheme or ordinate.mixers.Mixer"
    raise ValueError(f"{name} must be a subclass of {kinds} in {module_name}; got {found!r}; name the class")
