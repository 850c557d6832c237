"""HTML of findings: the report of a probed model with a card for each probe, and a single card for notebooks."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import vl_convert

from ordinate.core.finding import Finding
from ordinate.report.finding_card import card_context
from ordinate.report.html import script_hashes, script_safe_json, template_environment, vega_bundle
from ordinate.report.page import DRAW_SCRIPT

FORMATS = (1,)
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
    """

    about: dict[str, Any]
    findings: list[Finding]
    failures: dict[str, tuple[str, str]]


def read_findings(folder: Path) -> ProbedModel:
    """Read the folder of a probed model.

    Raises:
        ValueError: the folder has no findings that this version can read.
    """
    path = folder / "subject.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] not in FORMATS:
            raise ValueError(f"format {about['format']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"a folder of findings needs a readable subject.json; {path} cannot be read ({error}); check the path"
        ) from None
    findings, failures = [], {}
    for file in sorted((folder / "findings").glob("*.json")):
        written = json.loads(file.read_text(encoding="utf-8"))
        if "finding" in written:
            findings.append(Finding.model_validate(written["finding"]))
        else:
            failures[file.name.removesuffix(".failed.json")] = (written["title"], written["message"])
    return ProbedModel(about, findings, failures)


def findings_page(questioned: ProbedModel) -> str:
    """Return a self-contained HTML page; every text from the data is escaped."""
    facts = questioned.about["about"]["facts"]
    found = [card_context(finding) for finding in questioned.findings]
    found += [_failed(name, title, message) for name, (title, message) in questioned.failures.items()]
    found.sort(key=lambda one: _rank(one["name"]))
    specs = [{"id": chart["id"], "spec": chart["spec"]} for one in found for chart in one["charts"]]
    library, enlarge = vega_bundle(), files("ordinate.report").joinpath("enlarge.js").read_text(encoding="utf-8")
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
            specs=script_safe_json(specs),
            bundle=library,
            draw=DRAW_SCRIPT,
            enlarge=enlarge,
            script_hashes=script_hashes(library, DRAW_SCRIPT, enlarge),
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
    return files("ordinate.report").joinpath("card.css").read_text(encoding="utf-8")


def sort_findings(findings: list[Finding]) -> list[Finding]:
    """Sort findings in the order of the report."""
    return sorted(findings, key=lambda one: _rank(one.question))


def _rank(question: str) -> tuple[int, str]:
    return (PROBE_ORDER.index(question) if question in PROBE_ORDER else len(PROBE_ORDER), question)


def _failed(name: str, title: str, message: str) -> dict[str, Any]:
    last = message.strip().splitlines()[-1]
    empty = Finding(question=name, title=title, answer=f"This probe failed: {last}")
    return card_context(empty, failure=message)


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
