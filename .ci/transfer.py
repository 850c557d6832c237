"""Write docs/transfer.md and what decision cards say of it: `python .ci/transfer.py`.

Each study was run by the command in its study.json.
"""

import json
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from generated_parts import Pages, write

from ordinate.evaluation.comparison import Measurements
from ordinate.evaluation.rank_agreement import RankAgreement, rank_agreement
from ordinate.report.read import Study, load_study
from ordinate.report.summary import study_tables
from ordinate.report.transfer import MEASURED

ROOT = Path(__file__).parents[1]
PAGE, CARD = ROOT / "docs" / "transfer.md", ROOT / "src" / "ordinate" / "report" / MEASURED
# names of the corpora in the folders of the studies
CORPORA = {"code": "code", "English": "docs"}
# training compute relative to the quick plan, and what it is in the names of folders, which refer to an earlier quick
# plan with 300 steps in place of 200
SIZES = {1: "", 1.5: "1", 12: "8", 90: "60"}
# the earlier quick plan
OLD = 1.5
# those that decision cards name
LARGER = (12, 90)
# with fewer schemes, a rank correlation says nothing
MIN_SCHEMES = 4
LENGTHS = {"trained": False, "longest": True}


class Which(NamedTuple):
    """One of the studies.

    Args:
        corpus: its text.
        compute: its training compute, as a multiple of the quick plan's.
    """

    corpus: str
    compute: float

    @property
    def folder(self) -> Path:
        """Folder of the study; the quick study of code is the one that the README shows."""
        corpus, size = CORPORA[self.corpus], SIZES[self.compute]
        quick = "quick" if self.corpus == "code" else f"quick-{corpus}"
        return ROOT / "studies" / (f"transfer-{corpus}-{size}" if size else quick)

    @property
    def words(self) -> str:
        """Name in tables."""
        return f"{self.corpus}, {self.compute:g}x"


@cache
def study(which: Which) -> Study:
    """Load a study."""
    return load_study(which.folder)


def measured() -> list[Which]:
    """Return the studies that are committed and have results of enough schemes."""
    every = [Which(corpus, compute) for corpus in CORPORA for compute in SIZES]
    return [which for which in every if which.folder.exists() and len(tables(which, "trained")) >= MIN_SCHEMES]


def tables(which: Which, length: str) -> Mapping[str, Measurements]:
    """Return the measurements of the first seed of each scheme at the trained or the longest length."""
    found = study_tables(study(which), longest=LENGTHS[length])
    return {label: Measurements((0,), table.for_seeds([0]), table.sizes) for label, table in found.items()}


def agreement(one: Which, other: Which, length: str) -> RankAgreement:
    """Compare the rankings of two studies."""
    return rank_agreement(tables(one, length), tables(other, length))


def pairs() -> list[tuple[Which, Which]]:
    """Return the pairs of studies of one corpus and two sizes, and of one size and two corpora."""
    return [
        (one, other)
        for one, other in combinations(measured(), 2)
        if (one.corpus == other.corpus) != (one.compute == other.compute)
    ]


def table(length: str) -> str:
    """Table of the agreement of all pairs of studies."""
    head = ["studies", "schemes", "Kendall's tau", "decided in the first", "confirmed", "contradicted", "left open"]
    lines = [head, ["---"] * len(head)]
    for one, other in pairs():
        found = agreement(one, other, length)
        low, high = found.interval
        counts = (found.decided, found.confirmed, found.contradicted)
        lines.append(
            [
                f"{one.words} and {other.words}",
                str(found.models),
                f"{found.tau:.2f} ({low:.2f} to {high:.2f})",
                *map(str, counts),
                str(counts[0] - counts[1] - counts[2]),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def values(length: str) -> str:
    """Table of the bits per byte of all studies."""
    found = {which: tables(which, length) for which in measured()}
    schemes = dict.fromkeys(label for one in found.values() for label in one)
    lines = [["scheme", *(which.words for which in found)], ["---"] * (1 + len(found))]
    for scheme in schemes:
        bits = [
            f"{one[scheme].amounts.sum() / one[scheme].sizes.sum():.3f}" if scheme in one else "–"
            for one in found.values()
        ]
        lines.append([f"[{scheme}](schemes/{scheme}.md)", *bits])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def answer() -> str:
    """Say how many decided pairs larger studies confirm, for both lengths."""
    lines = []
    for length, where in (("trained", "At the trained length"), ("longest", "At 8 times that length")):
        for size in counts(length):
            open_ = size["decided"] - size["confirmed"] - size["contradicted"]
            lines.append(
                f"- {where}, of {size['decided']} pairs that the quick studies decide, studies of {size['compute']} "
                f"times the compute confirm {size['confirmed']}, contradict {size['contradicted']} and leave {open_} "
                "open."
            )
    return "\n".join(lines)


def counts(length: str) -> list[dict[str, int]]:
    """Return the counts of pairs that quick studies decide, over the corpora, for each larger size."""
    found = []
    for compute in LARGER:
        made = [
            agreement(one, other, length)
            for one, other in pairs()
            if (one.compute, other.compute) == (1, compute) and one.corpus == other.corpus
        ]
        if made:
            names = ("decided", "confirmed", "contradicted")
            found.append({"compute": compute, **{name: sum(getattr(one, name) for one in made) for name in names}})
    return found


def commands() -> str:
    """List the commands that run the studies."""
    lines = []
    for which in measured():
        one = study(which)
        steps = f"; by default {one.plan['steps']} steps then" if which.compute == OLD else ""
        left = f"; without a result yet: {', '.join(one.pending)}" if one.pending else ""
        lines.append(f"- {which.words}: `{one.manifest['command']}`{steps}{left}")
    return "\n".join(lines)


def pages() -> Pages:
    """Return the page with its generated parts, and the figures for decision cards."""
    parts = {"answer": answer(), "commands": commands()}
    parts |= {f"agreement-{length}": table(length) for length in LENGTHS}
    parts |= {f"values-{length}": values(length) for length in LENGTHS}
    return {PAGE: parts, CARD: json.dumps({length: counts(length) for length in LENGTHS}, indent=1) + "\n"}


if __name__ == "__main__":
    write(pages())
