"""Write the tables of docs/mixers/compared.md from the studies of all mixers: `python .ci/compared.py`.

`python .ci/compared.py --commands` prints the commands that run these studies.
"""

import sys
from pathlib import Path

from generated_parts import Pages, write

from ordinate.evaluation.comparison import compare
from ordinate.report.metric import Metric
from ordinate.report.read import Study, load_study
from ordinate.report.study_facts import subtitle
from ordinate.report.summary import ArmSummary, study_tables, summarise
from ordinate.report.verdict import verdict

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mixers" / "compared.md"
PLAIN = "softmax"
# options of each study besides those of all; together about 40 minutes on two idle cores
STUDIES = {
    "text": "--steps 300 --warmup-steps 40 --eval-samples 32 --shuffle-samples 32 --generated-texts 0",
    "copy": "--task copy --preset quick",
    "recall": "--task recall --preset quick",
    "listops": "--task listops:length=32 --preset quick",
}


def folder(name: str) -> Path:
    """Return the folder of a study."""
    return ROOT / "studies" / f"mixers-{name}"


def commands() -> list[str]:
    """Return the commands that run the studies."""
    every = "./dev study --mixers all --leader-seeds 0 --precision bf16"
    return [f"{every} {options} --out studies/mixers-{name}" for name, options in STUDIES.items()]


def cell(entry: ArmSummary | None, kind: Metric) -> str:
    """Format a value with its confidence interval, and the value at twice the length."""
    if entry is None:
        return ""
    level = entry.trained
    text = (
        f"{kind.format_value(level.value)} {kind.format_interval(level.interval)}"
        if level.interval
        else kind.format_value(level.value)
    )
    twice = entry.levels.get(2)
    return f"{text}, {kind.format_value(twice.value)}" if twice else text


def table(studies: dict[str, Study], entries: dict[str, list[ArmSummary]]) -> str:
    """Table with one row per mixer, in the order of the first study."""
    found = {name: {entry.label: entry for entry in entries[name]} for name in studies}
    compared = {label: one for study in studies.values() for label, one in study.arms.items()}
    order = list(dict.fromkeys([label for entries in found.values() for label in entries] + list(compared)))
    heads = [f"{name}, {study.metric.name}" for name, study in studies.items()]
    lines = [["mixer", "scheme", *heads], ["---"] * (len(heads) + 2)]
    for label in order:
        cells = [cell(found[name].get(label), study.metric) for name, study in studies.items()]
        lines.append([f"[{label}]({label}.md)", compared[label]["scheme"], *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def against_softmax(name: str, study: Study) -> str:
    """List the mixers that are better than softmax, worse, and not significantly different."""
    sides: dict[str, list[str]] = {"better": [], "worse": [], "no significant difference": []}
    pairs = compare(study_tables(study, longest=False))
    for label in study.arms:
        if found := pairs.get((label, PLAIN)):
            ahead = found.difference * study.metric.sign < 0
            side = "better" if ahead else "worse"
            sides[side if found.significant else "no significant difference"].append(label)
    lists = "; ".join(f"{side}: {', '.join(labels) or 'none'}" for side, labels in sides.items())
    return f"- **{name}** — {lists}."


def parts() -> dict[str, str]:
    """Return the generated parts of the page by name."""
    studies = {name: load_study(folder(name)) for name in STUDIES if (folder(name) / "study.json").exists()}
    entries = {name: summarise(study) for name, study in studies.items()}
    shown = "\n".join(commands())
    made = [f"- **{name}**: {subtitle(study)}" for name, study in studies.items()]
    verdicts = [f"**{name}.** {' '.join(verdict(study, entries[name]))}" for name, study in studies.items()]
    return {
        "table": table(studies, entries) if studies else "The studies have not been run.",
        "beside softmax": "\n".join(against_softmax(name, study) for name, study in studies.items()),
        "verdicts": "\n\n".join(verdicts),
        "made": "\n".join([f"```\n{shown}\n```", "", *made]),
    }


def pages() -> Pages:
    """Return the page with its generated parts."""
    return {PAGE: parts()}


if __name__ == "__main__":
    if "--commands" in sys.argv:
        print("\n".join(commands()))
    else:
        write(pages())
