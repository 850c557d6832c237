"""One offline page about a model: a card for each question."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ordinate.finding import Finding
from ordinate.report.card import card
from ordinate.report.offline import bundle, environment, hashes, inert
from ordinate.report.page import DRAW

FORMATS = (1,)
# questions in the order of a reader's curiosity; others follow by name
ORDER = ("order", "closeness", "subspaces", "roles", "survival", "offsets", "secrecy", "extrapolation")
WORDS = {"kv_heads": "key heads", "max_length": "longest input", "prefix": "tokens in front", "dtype": "numbers"}


@dataclass(frozen=True)
class Questioned:
    """What is known of a model.

    Args:
        about: the contents of subject.json.
        findings: what was found.
        failures: by question, its title and what went wrong.
    """

    about: dict[str, Any]
    findings: list[Finding]
    failures: dict[str, tuple[str, str]]


def read_findings(folder: Path) -> Questioned:
    """Read the folder of a questioned model.

    Raises:
        ValueError: nothing there that this version can read.
    """
    path = folder / "subject.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] not in FORMATS:
            raise ValueError(f"format {about['format']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"findings stand beside a subject.json; {path} cannot be read ({error}); check the path"
        ) from None
    findings, failures = [], {}
    for file in sorted((folder / "findings").glob("*.json")):
        written = json.loads(file.read_text(encoding="utf-8"))
        if "finding" in written:
            findings.append(Finding.model_validate(written["finding"]))
        else:
            failures[file.name.removesuffix(".failed.json")] = (written["title"], written["message"])
    return Questioned(about, findings, failures)


def findings_page(questioned: Questioned) -> str:
    """The page as HTML: everything in one file, nothing fetched, every text from the data escaped."""
    facts = questioned.about["about"]["facts"]
    found = [card(finding) for finding in questioned.findings]
    found += [_failed(name, title, message) for name, (title, message) in questioned.failures.items()]
    found.sort(key=lambda one: _place(one["name"]))
    specs = [{"id": chart["id"], "spec": chart["spec"]} for one in found for chart in one["charts"]]
    library, enlarge = bundle(), files("ordinate.report").joinpath("enlarge.js").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("findings.html.jinja")
        .render(
            title=f"What does position do inside {facts['name']}?",
            subtitle=_subtitle(facts, questioned.about["about"]["read"]),
            cards_shown=found,
            facts=_facts(questioned.about),
            command=questioned.about["about"]["command"],
            style=style(),
            specs=inert(specs),
            bundle=library,
            draw=DRAW,
            enlarge=enlarge,
            script_hashes=hashes(library, DRAW, enlarge),
        )
    )


def style() -> str:
    """The rules that cards are drawn by."""
    return files("ordinate.report").joinpath("card.css").read_text(encoding="utf-8")


def in_order(findings: list[Finding]) -> list[Finding]:
    """As a reader is curious."""
    return sorted(findings, key=lambda one: _place(one.question))


def _place(question: str) -> tuple[int, str]:
    return (ORDER.index(question) if question in ORDER else len(ORDER), question)


def _failed(name: str, title: str, message: str) -> dict[str, Any]:
    said = message.strip().splitlines()[-1]
    empty = Finding(question=name, title=title, answer=f"This question failed: {said}")
    return card(empty, failure=message)


def _subtitle(facts: dict[str, Any], read: str) -> str:
    if "kind" not in facts:
        return f"It could not be looked into: {read}."
    kind = {"vision": "model of images"}.get(facts["kind"], facts["kind"])
    article = "An" if kind[0] in "aeiou" else "A"
    return (
        f"{article} {kind} of the family {facts['family']}, {facts['layers']} layers of {facts['heads']} heads and "
        f"width {facts['width']:,}; position: {facts['position']}. It read {read}."
    )


def _facts(about: dict[str, Any]) -> list[tuple[str, str]]:
    facts = {WORDS.get(name, name.replace("_", " ")): value for name, value in about["about"]["facts"].items()}
    told = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    return [*told.items(), *((f"asked: {name}", str(value)) for name, value in about["asked"].items()),
            *((f"version of {name}", value) for name, value in about["versions"].items())]  # fmt: skip
