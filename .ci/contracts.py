"""Run all contract checks on all schemes and mixers and write what came of it to docs/contracts.md.

`python .ci/contracts.py`; the lists of checks alone are among the generated pages.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

from ordinate.core import catalog
from ordinate.mixers._mixer import Mixer
from ordinate.schemes._scheme import Scheme
from ordinate.testing import Check, Outcome, check_mixer, check_scheme, mixer_checks, scheme_checks

PAGE = Path(__file__).parents[1] / "docs" / "contracts.md"
Outcomes = dict[str, list[Outcome]]
SUITES = {"schemes": scheme_checks, "mixers": mixer_checks}


def sentence(name: str) -> str:
    """Return the name of a check as a sentence."""
    words = name.replace("_", " ")
    return words[0].upper() + words[1:]


def main() -> None:
    """Run both suites on all schemes and mixers and write the page."""
    schemes = {name: check_scheme(catalog.load("ordinate.schemes", Scheme, name)) for name in _names("schemes")}
    mixers = {name: check_mixer(catalog.load("ordinate.mixers", Mixer, name)) for name in _names("mixers")}
    parts = _outcomes("schemes", schemes, scheme_checks()) | _outcomes("mixers", mixers, mixer_checks())
    write({PAGE: parts | _lists()})
    for name, row in (schemes | mixers).items():
        for came in row:
            if not came.passed and came.skipped_reason is None:
                print(name, came.name, came.message)


def pages() -> Pages:
    """Return the parts of the page that no check is run for."""
    return {PAGE: _lists()}


def _names(folder: str) -> list[str]:
    return catalog.names(f"ordinate.{folder}")


def _lists() -> dict[str, str]:
    return {f"checks of {kind}": _requirements(checks()) for kind, checks in SUITES.items()}


def _outcomes(folder: str, outcomes: Outcomes, checks: list[Check[Any]]) -> dict[str, str]:
    return {folder: _cells(folder, outcomes, len(checks)), f"{folder} left out": _skipped(folder, outcomes)}


def _cells(folder: str, outcomes: Outcomes, checks: int) -> str:
    every = [outcome for row in outcomes.values() for outcome in row]
    passed, skipped = sum(o.passed for o in every), sum(o.skipped_reason is not None for o in every)
    failed = len(every) - passed - skipped
    lines = [
        f"{len(outcomes)} {folder} and {checks} checks make {len(every)} cases: {passed} pass, "
        f"{skipped} do not apply, {failed} fail. Other options than the defaults are covered by the tests of each.",
        "",
        f"| {folder[:-1]} | pass | do not apply | fail |",
        "|---|---|---|---|",
    ]
    for name, row in outcomes.items():
        holds, idle = sum(o.passed for o in row), sum(o.skipped_reason is not None for o in row)
        lines.append(f"| [{name}]({folder}/{name}.md) | {holds} | {idle} | {len(row) - holds - idle} |")
    return "\n".join(lines)


def _requirements(checks: list[Check[Any]]) -> str:
    lines = []
    for check in checks:
        text = " ".join((check.run.__doc__ or "").split())
        lines.append(f"- **{sentence(check.name)}.** {text}")
    return "\n".join(lines)


def _skipped(folder: str, outcomes: Outcomes) -> str:
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, row in outcomes.items():
        for outcome in row:
            if outcome.skipped_reason is not None:
                reasons[outcome.name][_short(outcome.skipped_reason)].append(name)
    lines = [f"| check | reason | {folder} |", "|---|---|---|"]
    for check, why in sorted(reasons.items()):
        for reason, names in why.items():
            lines.append(f"| {sentence(check)} | {reason} | {', '.join(names)} |")
    return "\n".join(lines)


def _short(reason: str) -> str:
    """Return one reason for all schemes that lack a hook, whichever hooks they have."""
    return "it does not use these hooks" if reason.startswith("it overrides") else reason


if __name__ == "__main__":
    main()
