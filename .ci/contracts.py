"""Write docs/contracts.md: every promise, tried out on every scheme and mixer: `python .ci/contracts.py`."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from ordinate import catalog
from ordinate.mixer import Mixer
from ordinate.scheme import Scheme
from ordinate.testing import Check, Outcome, check_mixer, check_scheme, mixer_checks, scheme_checks

PAGE = Path(__file__).parents[1] / "docs" / "contracts.md"
HEAD = """# What is promised

Every scheme makes the same promises, and so does every mixer; a suite that ships with Ordinate tries each of them.
`./dev check my_module:MyScheme` runs it on a scheme of yours, or on a mixer. Each promise is also tried on members
broken on purpose, which it must catch (`tests/contracts/`). This page is written by `.ci/contracts.py` from a run of
the suites.
"""
Outcomes = dict[str, list[Outcome]]


def sentence(name: str) -> str:
    """The name of a check as a sentence."""
    words = name.replace("_", " ")
    return words[0].upper() + words[1:]


def main() -> None:
    """Run both suites on the whole catalog and write the page."""
    schemes = {name: check_scheme(catalog.load("ordinate.schemes", Scheme, name)) for name in _names("schemes")}
    mixers = {name: check_mixer(catalog.load("ordinate.mixers", Mixer, name)) for name in _names("mixers")}
    parts = [HEAD, *_part("schemes", schemes, scheme_checks()), *_part("mixers", mixers, mixer_checks())]
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    for name, row in (schemes | mixers).items():
        for came in row:
            if not came.passed and came.skipped_reason is None:
                print(name, came.name, came.message)


def _names(folder: str) -> list[str]:
    return catalog.names(f"ordinate.{folder}")


def _part(folder: str, outcomes: Outcomes, checks: list[Check[Any]]) -> list[str]:
    return [
        f"## {folder.capitalize()}\n",
        *_cells(folder, outcomes, len(checks)),
        *_promises(folder, checks),
        *_skipped(folder, outcomes),
    ]


def _cells(folder: str, outcomes: Outcomes, checks: int) -> list[str]:
    every = [outcome for row in outcomes.values() for outcome in row]
    passed, skipped = sum(o.passed for o in every), sum(o.skipped_reason is not None for o in every)
    failed = len(every) - passed - skipped
    lines = [
        f"{len(outcomes)} {folder} and {checks} promises make {len(every)} cells: {passed} hold, "
        f"{skipped} do not apply, {failed} fail. Options beyond the defaults are tried in the tests of each.",
        "",
        f"| {folder[:-1]} | hold | do not apply | fail |",
        "|---|---|---|---|",
    ]
    for name, row in outcomes.items():
        holds, idle = sum(o.passed for o in row), sum(o.skipped_reason is not None for o in row)
        lines.append(f"| [{name}]({folder}/{name}.md) | {holds} | {idle} | {len(row) - holds - idle} |")
    return [*lines, ""]


def _promises(folder: str, checks: list[Check[Any]]) -> list[str]:
    lines = [f"### What {folder} promise", ""]
    for check in checks:
        said = " ".join((check.run.__doc__ or "").split())
        lines.append(f"- **{sentence(check.name)}.** {said}")
    return [*lines, ""]


def _skipped(folder: str, outcomes: Outcomes) -> list[str]:
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, row in outcomes.items():
        for outcome in row:
            if outcome.skipped_reason is not None:
                reasons[outcome.name][_short(outcome.skipped_reason)].append(name)
    lines = [f"### What does not apply to some {folder}", "", "| promise | because | to |", "|---|---|---|"]
    for check, why in sorted(reasons.items()):
        for reason, names in why.items():
            lines.append(f"| {sentence(check)} | {reason} | {', '.join(names)} |")
    return [*lines, ""]


def _short(reason: str) -> str:
    """One reason for all schemes that lack a hook, whichever hooks they have."""
    return "it does not enter there" if reason.startswith("it overrides") else reason


if __name__ == "__main__":
    main()
