"""Write docs/contracts.md: every promise, tried out on every scheme: `python .ci/contracts.py`."""

from collections import defaultdict
from pathlib import Path

from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.testing import Outcome, check_scheme, scheme_checks

PAGE = Path(__file__).parents[1] / "docs" / "contracts.md"
HEAD = """# What is promised

Every scheme makes the same promises, and a suite that ships with Ordinate tries each of them out. `./dev check
my_module:MyScheme` runs it on a scheme of yours. Each promise is also tried on schemes broken on purpose, which it
must catch (`tests/contracts/mutants/`). This page is written by `.ci/contracts.py` from a run of the suite.
"""


def sentence(name: str) -> str:
    """The name of a check as a sentence."""
    words = name.replace("_", " ")
    return words[0].upper() + words[1:]


def main() -> None:
    """Run the suite on the whole catalog and write the page."""
    outcomes: dict[str, list[Outcome]] = {}
    for name in catalog.names("ordinate.schemes"):
        outcomes[name] = check_scheme(catalog.load("ordinate.schemes", Scheme, name))
        failed = [outcome for outcome in outcomes[name] if not outcome.passed and outcome.skipped_reason is None]
        print(
            name, sum(outcome.passed for outcome in outcomes[name]), [outcome.name for outcome in failed], flush=True
        )
    PAGE.write_text("\n".join([HEAD, *_cells(outcomes), *_promises(), *_skipped(outcomes)]) + "\n", encoding="utf-8")


def _cells(outcomes: dict[str, list[Outcome]]) -> list[str]:
    every = [outcome for row in outcomes.values() for outcome in row]
    passed, skipped = sum(o.passed for o in every), sum(o.skipped_reason is not None for o in every)
    failed = len(every) - passed - skipped
    lines = [
        f"{len(outcomes)} schemes and {len(scheme_checks())} promises make {len(every)} cells: {passed} hold, "
        f"{skipped} do not apply, {failed} fail. Options beyond the defaults are tried in each scheme's tests.",
        "",
        "| scheme | hold | do not apply | fail |",
        "|---|---|---|---|",
    ]
    for name, row in outcomes.items():
        holds, idle = sum(o.passed for o in row), sum(o.skipped_reason is not None for o in row)
        lines.append(f"| [{name}](schemes/{name}.md) | {holds} | {idle} | {len(row) - holds - idle} |")
    return [*lines, ""]


def _promises() -> list[str]:
    lines = ["## The promises", ""]
    for check in scheme_checks():
        said = " ".join((check.run.__doc__ or "").split())
        lines.append(f"- **{sentence(check.name)}.** {said}")
    return [*lines, ""]


def _skipped(outcomes: dict[str, list[Outcome]]) -> list[str]:
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, row in outcomes.items():
        for outcome in row:
            if outcome.skipped_reason is not None:
                reasons[outcome.name][_short(outcome.skipped_reason)].append(name)
    lines = ["## What does not apply", "", "| promise | because | to |", "|---|---|---|"]
    for check, why in sorted(reasons.items()):
        for reason, names in why.items():
            lines.append(f"| {sentence(check)} | {reason} | {', '.join(names)} |")
    return lines


def _short(reason: str) -> str:
    """One reason for all schemes that lack a hook, whichever hooks they have."""
    return "it does not enter there" if reason.startswith("it overrides") else reason


if __name__ == "__main__":
    main()
