"""Write the tables of docs/mixers/compared.md from the studies of all mixers: `python .ci/compared.py`.

The studies themselves are made by `python .ci/compared.py --commands`, which prints how.
"""

import sys
from pathlib import Path

from ordinate.report.facts import subtitle
from ordinate.report.quantity import Quantity
from ordinate.report.read import Study, read
from ordinate.report.summary import Entry, study_tables, summarise
from ordinate.report.verdict import verdict
from ordinate.study.comparison import compare

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mixers" / "compared.md"
PLAIN = "softmax"
# what each study is asked for, beside --mixers all; together about 40 minutes on two quiet cores
STUDIES = {
    "text": "--steps 300 --windows 32 --shuffled 32 --samples 0",
    "copy": "--task copy --preset quick",
    "recall": "--task recall --preset quick",
    "listops": "--task listops:length=32 --preset quick",
}


def folder(name: str) -> Path:
    """Where a study lies."""
    return ROOT / "studies" / f"mixers-{name}"


def commands() -> list[str]:
    """How the studies are made."""
    return [f"./dev study --mixers all {options} --out studies/mixers-{name}" for name, options in STUDIES.items()]


def cell(entry: Entry | None, kind: Quantity) -> str:
    """A number with its interval, and that at twice the length."""
    if entry is None:
        return ""
    level = entry.trained
    text = f"{kind.text(level.value)} {kind.bounds(level.interval)}" if level.interval else kind.text(level.value)
    twice = entry.levels.get(2)
    return f"{text}, {kind.text(twice.value)}" if twice else text


def table(studies: dict[str, Study], entries: dict[str, list[Entry]]) -> str:
    """One row for each mixer, by the first study."""
    found = {name: {entry.label: entry for entry in entries[name]} for name in studies}
    compared = {label: one for study in studies.values() for label, one in study.compared.items()}
    order = list(dict.fromkeys([label for entries in found.values() for label in entries] + list(compared)))
    heads = [f"{name}, {study.quantity.name}" for name, study in studies.items()]
    first = next(iter(studies.values()))
    lines = [["mixer", "scheme", *heads, "tokens / s"], ["---"] * (len(heads) + 3)]
    for label in order:
        cells = [cell(found[name].get(label), study.quantity) for name, study in studies.items()]
        speeds = [run["cost"]["tokens_per_second"] for run in first.done(label)]
        speed = f"{sum(speeds) / len(speeds):,.0f}" if speeds else ""
        lines.append([f"[{label}]({label}.md)", compared[label]["scheme"], *cells, speed])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beside_softmax(name: str, study: Study) -> str:
    """Who is ahead of softmax, who behind, and who cannot be told from it."""
    sides: dict[str, list[str]] = {"ahead of it": [], "behind it": [], "not to be told from it": []}
    pairs = compare(study_tables(study, longest=False))
    for label in study.compared:
        if found := pairs.get((label, PLAIN)):
            ahead = found.difference * study.quantity.sign < 0
            side = "ahead of it" if ahead else "behind it"
            sides[side if found.sure else "not to be told from it"].append(label)
    said = "; ".join(f"{side}: {', '.join(labels) or 'none'}" for side, labels in sides.items())
    return f"- **{name}** — {said}."


def parts() -> dict[str, str]:
    """Each generated part of the page by the name that stands at its beginning and end."""
    studies = {name: read(folder(name)) for name in STUDIES if (folder(name) / "study.json").exists()}
    entries = {name: summarise(study) for name, study in studies.items()}
    shown = "\n".join(commands())
    made = [f"- **{name}**: {subtitle(study)}" for name, study in studies.items()]
    verdicts = [f"**{name}.** {' '.join(verdict(study, entries[name]))}" for name, study in studies.items()]
    return {
        "table": table(studies, entries) if studies else "The studies have not been run.",
        "beside softmax": "\n".join(beside_softmax(name, study) for name, study in studies.items()),
        "verdicts": "\n\n".join(verdicts),
        "made": "\n".join([f"```\n{shown}\n```", "", *made]),
    }


def filled(page: str, texts: dict[str, str]) -> str:
    """The page with each generated part in its place."""
    for name, text in texts.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not (begin and end):
            raise SystemExit(f"{PAGE} needs the lines <!-- {name} --> and <!-- end of {name} -->")
        page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    if "--commands" in sys.argv:
        print("\n".join(commands()))
    else:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts()), encoding="utf-8")
