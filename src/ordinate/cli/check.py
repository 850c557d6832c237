"""`ordinate check`: the contract suite on a class of your own."""

from typing import TYPE_CHECKING, Any

from ordinate.cli.plain_text import styled, write_line
from ordinate.core.checks import need
from ordinate.core.class_reference import import_user_module

if TYPE_CHECKING:
    from ordinate.testing import Outcome


def check(target: str) -> int:
    """Run the contract suite on a scheme or mixer of your own; exits with 1 if a check fails.

    Parameters
    ----------
    target
        The class as module:Class, e.g. my_schemes.spiral:Spiral. The module is imported, which runs its code.
    """
    outcomes = _outcomes(target)
    for outcome in outcomes:
        style = ("dim",) if outcome.skipped_reason else ("green",) if outcome.passed else ("bold", "red")
        mark = "skipped" if outcome.skipped_reason else "passed " if outcome.passed else "FAILED "
        details = outcome.skipped_reason or outcome.message
        write_line(styled(mark, *style), styled(f"{outcome.name}: {details}" if details else outcome.name))
    need(
        any(not outcome.skipped_reason for outcome in outcomes),
        "at least one check must apply to the class",
        f"of {len(outcomes)} checks none does",
        "override a hook, or declare a form",
    )
    failed = sum(not outcome.passed and not outcome.skipped_reason for outcome in outcomes)
    write_line(f"{len(outcomes)} checks, {failed} failed")
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
    module = import_user_module(module_name)
    found: Any = getattr(module, name, None)
    kinds = "ordinate.schemes.Scheme or ordinate.mixers.Mixer"
    known = isinstance(found, type) and issubclass(found, Scheme | Mixer)
    must = f"{name} must be a subclass of {kinds} in {module_name}"
    need(known, must, f"got {found!r}", "name the class")
    try:
        return check_scheme(found) if issubclass(found, Scheme) else check_mixer(found)
    except SystemExit as error:
        raise ValueError(f"the class must not exit; {name} called exit({error.code}); remove it") from None
