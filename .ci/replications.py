"""Write the tables of docs/replications.md from committed results: `python .ci/replications.py`.

The results are written by `ordinate replicate all --out studies/replications --trained studies/replications/trained`,
those of trained models by the same with `--train`, and for a model by
`ordinate replicate all FOLDER --out studies/replications`.
"""

from collections.abc import Iterable
from pathlib import Path

from generated_parts import Pages, write

from ordinate.core.finding import format_number
from ordinate.replications.result import WORDS, Claim, ClaimResult, Needs, ReplicationResult
from ordinate.replications.runner import read, selected

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "replications.md", ROOT / "studies" / "replications"
TRAINED = "trained"
HEADS = ("replication", "claim", "source", "printed", "ours [95 %]", "null", "verdict")


def results(folder: Path) -> list[ReplicationResult]:
    """Results in a folder, in the order of their replications."""
    found = {path.stem: read(path) for path in folder.glob("*.json")}
    return [found[name] for name in selected(["all"]) if name in found]


def row(result: ReplicationResult, one: ClaimResult) -> str:
    """Row of one claim."""
    claim, (value, low, high) = one.claim, one.ours.formatted
    ours = f"{value} [{low}, {high}]" if low else value
    name, value = f"[{result.name}](#{result.name})", f"{ours} {one.ours.unit}".rstrip()
    verdict = f"**{WORDS[one.verdict]}**"
    cells = (name, claim.text, source(result, claim), printed(claim), value, null(one), verdict)
    return f"| {' | '.join(cells)} |"


def source(result: ReplicationResult, claim: Claim) -> str:
    """Link to the claim."""
    if claim.source:
        # an address of arXiv ends in its identifier
        return f"[{claim.source.rpartition('/')[2]}]({claim.source})"
    return f"[{result.paper.authors} {result.paper.year}]({result.paper.url})"


def printed(claim: Claim) -> str:
    """The printed number, and whether it was compared with the publication."""
    return f"{claim.printed}{'' if claim.checked else ' (from notes)'}" if claim.printed else "–"


def null(one: ClaimResult) -> str:
    """What is measured without the effect."""
    ends = (one.ours.null_low, one.ours.null_high)
    if ends[0] is not None and ends[1] is not None:
        return f"{format_number(ends[0])} to {format_number(ends[1])}"
    return format_number(one.ours.null)


def table(found: Iterable[ReplicationResult], needs: Needs = "nothing") -> str:
    """Table of the claims that need no more than this."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for result in found:
        lines += [row(result, one) for one in result.claims if one.claim.needs == needs]
    return "\n".join(lines)


def criteria(found: Iterable[ReplicationResult]) -> str:
    """What was measured for each claim, its criteria, and the controls, by replication."""
    parts = []
    for result in found:
        paper = result.paper
        parts += [f"### {result.name}", "", f"{paper.authors} {paper.year}, [{paper.title}]({paper.url})", ""]
        for one in result.claims:
            claim = one.claim
            beside = f"{claim.expected:g} to within {claim.size:g}" if claim.side == "equal" else ""
            effect = beside or f"{claim.side} the null by {claim.size:g} or more"
            parts.append(
                f"- *{claim.name}* ({claim.tested}). Measured: {claim.quantity}. Agrees if {effect}. Null: "
                f"{claim.null}."
            )
        parts += ["", "Controls, all recovered:" if all(c.recovered for c in result.controls) else "Controls:", ""]
        parts += [
            f"- {control.name}: {format_number(control.got)} (truth: {format_number(control.expected)})"
            for control in result.controls
        ]
        parts.append("")
    return "\n".join(parts).rstrip()


def models() -> str:
    """Tables of the checkpoints that were measured."""
    parts = []
    for folder in sorted(path for path in FOLDER.iterdir() if path.is_dir() and path.name != TRAINED):
        found = results(folder)
        read_by_it = f"Texts: {'; '.join(dict.fromkeys(one.texts for one in found if one.texts))}."
        parts += [f"### {found[0].model}", "", read_by_it, "", table(found, "model"), "", left_out(found), ""]
    return "\n".join(parts).rstrip()


def left_out(found: list[ReplicationResult]) -> str:
    """The claims about trained models that were not measured on this one."""
    measured = {(result.name, one.claim.name) for result in found for one in result.claims}
    lines = []
    for name, member in selected(["all"], model=True).items():
        missing = [c.name for c in member.claims if c.needs == "model" and (name, c.name) not in measured]
        lines += [f"{name} ({', '.join(missing)})"] if missing else []
    return f"Claims that do not apply to it: {'; '.join(lines)}."


def training(found: Iterable[ReplicationResult]) -> str:
    """Table of the claims about training, and what training took."""
    trained = [result for result in found if result.trained]
    cost = [f"- {result.name}: {result.trained}" for result in trained]
    return "\n".join([table(trained, "training"), "", "Trained for this:", "", *cost])


def grouped() -> str:
    """The published and the right score of a symmetric grouped-query layer, in a sentence."""
    found = next(result for result in results(FOLDER) if result.name == "saponati")
    claim = next(one for one in found.claims if one.claim.name == "grouped queries")
    value, low, high = claim.ours.formatted
    right = next(control for control in found.controls if control.name.startswith("symmetric heads in groups"))
    return (
        f"A layer of 32 heads and 8 key heads whose matrices are all exactly symmetric has the symmetry "
        f"{format_number(right.got)} if paired rightly. The published pairing gives it {value} [{low}, {high}]."
    )


def pages() -> Pages:
    """Return the page with its tables."""
    found = results(FOLDER)
    return {
        PAGE: {
            "claims": table(found),
            "training": training(found),
            "models": models(),
            "grouped queries": grouped(),
            "criteria": criteria(found),
        }
    }


if __name__ == "__main__":
    write(pages())
