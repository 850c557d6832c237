"""HTML of findings: the report of a probed model with a card for each probe, and a single card for notebooks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vl_convert

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.checks import need
from ordinate.core.finding import Finding
from ordinate.report.finding_card import card_context
from ordinate.report.html import chart_context, package_text, template_environment

FORMATS = (1, 2)
REMEDY = "repeat the command of the probes, which measures it again"
# order of the probes in a report; others follow by name
PROBE_ORDER = (
    "order_sensitivity",
    "position_similarity",
    "position_content_subspaces",
    "qk_roles",
    "position_retention",
    "positional_heads",
    "privacy",
    "extrapolation",
)
FACT_LABELS = {"kv_heads": "key/value heads", "prefix": "prefix tokens"}
# pixels of a chart in a notebook
NOTEBOOK_WIDTH = 680


@dataclass(frozen=True)
class ProbedModel:
    """A probed model and its findings.

    Args:
        about: the contents of subject.json.
        findings: the findings of the probes that finished.
        failures: title and traceback by name of each probe that failed.
        damaged: what is wrong with each finding that cannot be used, by name of the probe.
    """

    about: dict[str, Any]
    findings: list[Finding]
    failures: dict[str, tuple[str, str]]
    damaged: dict[str, str]


def read_findings(folder: Path) -> ProbedModel:
    """Read the folder of a probed model.

    Raises:
        ValueError: the folder has no findings that this version can read.
    """
    path = folder / "subject.json"
    try:
        about = read_checksummed(path)
        if about["format"] not in FORMATS:
            raise ValueError(f"format {about['format']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"a folder of findings needs a readable subject.json; {path} cannot be read ({error}); check the path"
        ) from None
    findings, failures, damaged = [], {}, {}
    for file in sorted((folder / "findings").glob("*.json")):
        name = file.name.removesuffix(".json").removesuffix(".failed")
        try:
            written = read_checksummed(file, REMEDY)
            if "finding" in written:
                findings.append(_finding(file, name, written["finding"]))
            else:
                failures[name] = (written["title"], written["message"])
        # one damaged file must not hide the others
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged[name] = f"The finding cannot be used: {error}."
    return ProbedModel(about, findings, failures, damaged)


def _finding(path: Path, name: str, written: Any) -> Finding:
    finding = Finding.model_validate(written)
    need(finding.question == name, "a file must hold the finding that it is named after",
         f"{path} is of {finding.question}", REMEDY)  # fmt: skip
    return finding


def findings_page(questioned: ProbedModel) -> str:
    """Return a self-contained HTML page; every text from the data is escaped."""
    facts = questioned.about["about"]["facts"]
    found = [card_context(finding) for finding in questioned.findings]
    found += [_failed(name, title, message) for name, (title, message) in questioned.failures.items()]
    found += [_unusable(name, said) for name, said in questioned.damaged.items()]
    found.sort(key=lambda one: _rank(one["name"]))
    specs = {chart["id"]: chart["spec"] for one in found for chart in one["charts"]}
    enlarge = package_text("enlarge.js")
    return (
        template_environment()
        .get_template("findings.html.jinja")
        .render(
            title=f"What does position do inside {facts['name']}?",
            subtitle=_subtitle(facts, questioned.about["about"]["read"]),
            cards_shown=found,
            facts=_facts(questioned.about),
            command=questioned.about["about"]["command"],
            style=card_style(),
            frame=package_text("findings.css"),
            enlarge=enlarge,
            **chart_context(specs, enlarge),
        )
    )


def notebook_card(finding: Finding) -> str:
    """Return the card of a finding as HTML without scripts: charts are rendered to static SVG."""
    shown = card_context(finding)
    for chart in shown["charts"]:
        spec = {**chart["spec"], "width": NOTEBOOK_WIDTH}
        chart["drawn"] = vl_convert.vegalite_to_svg(spec).replace('color="currentColor"', "")
    return template_environment().get_template("notebook.html.jinja").render(card=shown, style=card_style())


def card_style() -> str:
    """Return the style sheet of cards."""
    return package_text("card.css")


def sort_findings(findings: list[Finding]) -> list[Finding]:
    """Sort findings in the order of the report."""
    return sorted(findings, key=lambda one: _rank(one.question))


def _rank(question: str) -> tuple[int, str]:
    return (PROBE_ORDER.index(question) if question in PROBE_ORDER else len(PROBE_ORDER), question)


def _failed(name: str, title: str, message: str) -> dict[str, Any]:
    last = message.strip().splitlines()[-1]
    empty = Finding(question=name, title=title, answer=f"This probe failed: {last}")
    return card_context(empty, failure=message)


def _unusable(name: str, said: str) -> dict[str, Any]:
    empty = Finding(question=name, title=name.replace("_", " ").capitalize(), answer=said)
    return {**card_context(empty), "status": "failed"}


def _subtitle(facts: dict[str, Any], read: str) -> str:
    if "kind" not in facts:
        return f"The model cannot be probed: {read}."
    kind = {"vision": "vision model"}.get(facts["kind"], facts["kind"])
    article = "An" if kind[0] in "aeiou" else "A"
    return (
        f"{article} {kind} of the family {facts['family']}, {facts['layers']} layers of {facts['heads']} heads and "
        f"width {facts['width']:,}; position: {facts['position']}. Input: {read}."
    )


def _facts(about: dict[str, Any]) -> list[tuple[str, str]]:
    facts = {FACT_LABELS.get(name, name.replace("_", " ")): value for name, value in about["about"]["facts"].items()}
    known = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    return [*known.items(), *((f"option: {name}", str(value)) for name, value in about["asked"].items()),
            *((f"version of {name}", value) for name, value in about["versions"].items())]  # fmt: skip
