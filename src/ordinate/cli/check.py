"""`ordinate check`: the contract suite on a class of your own."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordinate import __version__
from ordinate.cli.plain_text import styled, write_line
from ordinate.core.atomic_files import write_text
from ordinate.core.checks import need
from ordinate.core.class_reference import import_user_module, source_digest
from ordinate.core.output_folder import check_output_file

if TYPE_CHECKING:
    from ordinate.testing import Check, Outcome

# an SVG of two fields, 20 pixels high; the texts are 6.5 pixels a letter
BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img"
 aria-label="{label}: {text}">
<title>{label}: {text}</title><rect width="{left}" height="20" fill="#444"/>
<rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,sans-serif" font-size="11">
<text x="{first}" y="14">{label}</text><text x="{second}" y="14">{text}</text></g></svg>
"""
LETTER, MARGIN, PASSED, FAILED = 6.5, 12, "#2b6a30", "#a3262a"


def check(target: str, *, badge: Path | None = None) -> int:
    """Run the contract suite on a scheme or mixer of your own; exits with 1 if a check fails.

    Parameters
    ----------
    target
        The class as module:Class, e.g. my_schemes.spiral:Spiral. The module is imported, which runs its code.
    badge
        Write the result to this file too, as a picture for a README: an .svg.
    """
    fits = badge is None or badge.suffix == ".svg"
    need(fits, "--badge needs a file that ends in .svg", f"got {badge}", "give for example --badge check.svg")
    if badge is not None:
        check_output_file(badge, "--badge")
    kind, checks, outcomes = _outcomes(target)
    for outcome in outcomes:
        style = ("dim",) if outcome.skipped_reason else ("green",) if outcome.passed else ("bold", "red")
        mark = "skipped" if outcome.skipped_reason else "passed " if outcome.passed else "FAILED "
        details = outcome.skipped_reason or outcome.message
        write_line(styled(mark, *style), styled(f"{outcome.name}: {details}" if details else outcome.name))
    run = [outcome for outcome in outcomes if not outcome.skipped_reason]
    need(
        bool(run),
        "at least one check must apply to the class",
        f"of {len(outcomes)} checks none does",
        "override a hook, or declare a form",
    )
    failed = sum(not outcome.passed for outcome in run)
    _write_card(target, kind, checks, outcomes)
    if badge is not None:
        text = f"{failed} of {len(run)} checks failed" if failed else f"{len(run)} checks passed"
        badge.parent.mkdir(parents=True, exist_ok=True)
        write_text(badge, _badge("ordinate check", text, FAILED if failed else PASSED))
    return 1 if failed else 0


def _write_card(target: str, kind: str, checks: "Sequence[Check[Any]]", outcomes: "Sequence[Outcome]") -> None:
    """Write what was shown, topic by topic, and with what; the last line has the counts."""
    run = [outcome for outcome in outcomes if not outcome.skipped_reason]
    failed = sum(not outcome.passed for outcome in run)
    name = target.partition(":")[2]
    verdict = f"{name} {'does not keep' if failed else 'keeps'} the contract of a {kind}"
    write_line("\n" + styled(verdict, "bold", "red" if failed else "green"))
    for topic, own in _by_topic(checks, outcomes).items():
        applied = [outcome for outcome in own if not outcome.skipped_reason]
        good = sum(outcome.passed for outcome in applied)
        word, style = ("yes", "green") if good == len(applied) else ("NO", "red")
        if applied:
            write_line(styled(f"  {word:<4}", style), styled(f"{topic} ({good} of {len(applied)})"))
        else:
            write_line(styled(f"  -    {topic} (does not apply)", "dim"))
    torch, skipped = sys.modules["torch"], len(outcomes) - len(run)
    write_line(styled(f"ordinate {__version__}, torch {torch.__version__}, source {source_digest(target)}", "dim"))
    write_line(f"{len(outcomes)} checks: {len(run) - failed} passed, {skipped} skipped, {failed} failed")


def _by_topic(checks: "Sequence[Check[Any]]", outcomes: "Sequence[Outcome]") -> "dict[str, list[Outcome]]":
    """Outcomes by the topic of their checks: the first line of the module that has them, without its details."""
    found: dict[str, list[Outcome]] = {}
    for one, outcome in zip(checks, outcomes, strict=True):
        line = (inspect.getdoc(inspect.getmodule(one.run)) or one.name).splitlines()[0]
        found.setdefault(line.partition(":")[0].rstrip("."), []).append(outcome)
    return found


def _badge(label: str, text: str, colour: str) -> str:
    left, right = (round(len(part) * LETTER + MARGIN) for part in (label, text))
    places = {"width": left + right, "left": left, "right": right, "first": left / 2, "second": left + right / 2}
    return BADGE.format(label=label, text=text, colour=colour, **places)


def _outcomes(target: str) -> "tuple[str, Sequence[Check[Any]], list[Outcome]]":
    """Return the kind of the class, the checks of its contract, and their outcomes."""
    from ordinate.mixers._mixer import Mixer
    from ordinate.schemes._scheme import Scheme
    from ordinate.testing import check_mixer, check_scheme, mixer_checks, scheme_checks

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
        if issubclass(found, Scheme):
            return "scheme", scheme_checks(), check_scheme(found)
        return "mixer", mixer_checks(), check_mixer(found)
    except SystemExit as error:
        raise ValueError(f"the class must not exit; {name} called exit({error.code}); remove it") from None
