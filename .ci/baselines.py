"""Write the results of docs/baselines.md, and what docs/study.md says of the quick plan: `python .ci/baselines.py`.

The studies are run by `ordinate study --config .ci/baselines.toml --out studies/baselines` and
`ordinate study --leader-seeds 0 --tune-lr .002 .004 .008 .016 --tune-fraction .5 --out studies/tuned`.
"""

from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from generated_parts import Pages, write

from ordinate.evaluation.comparison import Comparison, Measurements, compare_all
from ordinate.models.shape import Shape
from ordinate.report.read import Study, load_cells, load_manifest, load_study
from ordinate.report.study_facts import subtitle
from ordinate.report.summary import study_tables, summarise, summarise_all
from ordinate.report.tuning_text import describe_tuning, rate_table, tuning_records
from ordinate.study.options import TOKEN_FIELDS
from ordinate.study.plan import Plan
from ordinate.study.token_embeddings import with_token_embeddings

ROOT = Path(__file__).parents[1]
DEFAULTS = {name: Plan.model_fields[name].default for name in TOKEN_FIELDS}
PAGE, FOLDER = ROOT / "docs" / "baselines.md", ROOT / "studies" / "baselines"
PLAN_PAGE, QUICK = ROOT / "docs" / "study.md", ROOT / "studies" / "quick"
TUNED = ROOT / "studies" / "tuned"


class Baseline(NamedTuple):
    """A scheme with one kind of token embeddings.

    Args:
        scheme: the scheme.
        kind: the kind, as a column of the table.
    """

    scheme: str
    kind: str

    @property
    def words(self) -> str:
        """Name in sentences."""
        return f"{self.scheme} ({self.kind})"


def kind_of(scale: float, std: float) -> str:
    """Return the kind of token embeddings with this factor and standard deviation."""
    if scale == 1:
        return "GPT-2"
    return "the paper" if std == 1 else f"the paper's table at {std:g}"


class Results:
    """The results of the study.

    Args:
        folder: of the study.
    """

    def __init__(self, folder: Path) -> None:
        cells = [study for _, study in load_cells(folder, load_manifest(folder))]
        kinds = [kind_of(study.plan["embedding_scale"], study.plan["embedding_std"]) for study in cells]
        self.studies: dict[str, Study] = dict(zip(kinds, cells, strict=True))
        self.first = self.studies["GPT-2"]
        self.others = [kind for kind in kinds if kind != "GPT-2"]
        ranked, _ = summarise_all(cells)
        self.entries = {
            Baseline(one.label, kind): one for kind, entries in zip(kinds, ranked, strict=True) for one in entries
        }
        self.tables: dict[Baseline, Measurements] = {
            Baseline(label, kind): table
            for kind, study in self.studies.items()
            for label, table in study_tables(study, longest=False).items()
        }

    @property
    def schemes(self) -> list[str]:
        """The schemes, the best with its default token embeddings first."""
        return sorted(self.first.arms, key=lambda scheme: self.entries[self.default(scheme)].trained.value)

    def default(self, scheme: str) -> Baseline:
        """Return the scheme with the token embeddings that a study gives it by default."""
        plan = Plan.stored(self.first.plan).model_copy(update=DEFAULTS)
        shape = Shape(vocabulary=2, width=plan.width, layers=plan.layers, heads=plan.heads, scheme=scheme)
        made = with_token_embeddings(shape, plan)
        return Baseline(scheme, kind_of(made.embedding_scale, made.embedding_std))

    def compare(self, pairs: Iterable[tuple[Baseline, Baseline]]) -> Mapping[tuple[Baseline, Baseline], Comparison]:
        """Compare pairs of baselines that have results, corrected together for multiple testing."""
        wanted = [pair for pair in pairs if all(one in self.tables for one in pair)]
        groups = [{str(place): self.tables[one] for place, one in enumerate(pair)} for pair in wanted]
        return {pair: found["0", "1"] for pair, found in zip(wanted, compare_all(groups), strict=True)}


def interval(found: Comparison) -> str:
    """Format a difference with its interval."""
    low, high = found.interval or (float("nan"), float("nan"))
    return f"{found.difference:+.3f} ({low:+.3f} to {high:+.3f})"


def table(results: Results) -> str:
    """Table of all baselines: GPT-2's token embeddings, and the paired differences of the others from it."""
    pairs = [
        (Baseline(label, kind), Baseline(label, "GPT-2")) for label in results.schemes for kind in results.others
    ]
    made = results.compare(pairs)
    lines = [["scheme", "GPT-2", *results.others, "default"], ["---"] * (3 + len(results.others))]
    for label in results.schemes:
        found = [made.get((Baseline(label, kind), Baseline(label, "GPT-2"))) for kind in results.others]
        differences = ["–" if one is None else interval(one) + "*" * one.significant for one in found]
        plain = f"{results.entries[Baseline(label, 'GPT-2')].trained.value:.3f}"
        lines.append([f"[{label}](schemes/{label}.md)", plain, *differences, results.default(label).kind])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beyond(results: Results) -> str:
    """Table of all baselines at the longest evaluated length."""
    kinds = ["GPT-2", *results.others]
    lines = [["scheme", *kinds], ["---"] * (1 + len(kinds))]
    for label in results.schemes:
        found = [results.entries.get(Baseline(label, kind)) for kind in kinds]
        lines.append(
            [f"[{label}](schemes/{label}.md)", *(f"{one.longest.value:.3f}" if one else "–" for one in found)]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sentences(results: Results) -> str:
    """State how sinusoidal compares with learned: by default, and with equal token embeddings."""
    kinds = ["GPT-2", *results.others]
    pairs = [(results.default("sinusoidal"), results.default("learned"))]
    pairs += [(Baseline("sinusoidal", kind), Baseline("learned", kind)) for kind in kinds]
    return "\n".join(f"- {say(pair, found)}" for pair, found in results.compare(dict.fromkeys(pairs)).items())


def say(pair: tuple[Baseline, Baseline], found: Comparison) -> str:
    """Say which of two baselines is better, and by how much."""
    verdict = "worse" if found.difference > 0 else "better"
    told = f"{verdict} than" if found.significant else "not significantly different from"
    return f"{pair[0].words} is **{told}** {pair[1].words}: {interval(found)} bits per byte."


def made(results: Results) -> str:
    """Say how the study was made."""
    plan = results.first.plan
    documents = next(iter(results.tables.values())).sizes.size
    return (
        f"{subtitle(results.first)} The first table is of the trained length, on "
        f"{documents} held-out files of the text `{plan['text']}`. Command: `{results.first.manifest['command']}`."
    )


def agreement(results: Results) -> str:
    """Say how the quick study ranks the schemes, beside this one, which trains them longer."""
    quick = load_study(QUICK)
    own = {one.label: one for one in summarise(quick)}
    other = {label: results.entries[results.default(label)] for label in own}
    said = []
    for name, where in (("trained", "at the trained length"), ("longest", "at 8 times that length")):
        short, long = ({label: getattr(one, name).value for label, one in found.items()} for found in (own, other))
        pairs = list(combinations(own, 2))
        alike = sum((short[one] < short[two]) == (long[one] < long[two]) for one, two in pairs)
        best = (
            "the same scheme is best" if min(short, key=short.get) == min(long, key=long.get) else "another is best"
        )
        said.append(f"{alike} of {len(pairs)} pairs {where}, where {best}")
    steps = quick.plan["steps"], results.first.plan["steps"]
    return (
        f"With {steps[0]} steps (studies/quick) the eight default schemes rank as with {steps[1]} "
        f"([studies/baselines](baselines.md), one seed) in {said[0]}; in {said[1]}."
    )


def tuned_rates(tuned: Study, usual: float) -> str:
    """Table of the loss of each scheme with each learning rate, and how many choose the one that all have usually."""
    made, records = rate_table(tuned), tuning_records(tuned)
    if made is None:
        raise ValueError("the table needs tuned learning rates; got a study without; run it with --tune-lr")
    lines = [["scheme", *made["heads"]], ["---"] * (1 + len(made["heads"]))]
    for row in made["rows"]:
        values = [f"**{cell['value']}**" if cell["best"] else str(cell["value"]) for cell in row["cells"]]
        lines.append([f"[{row['label']}](schemes/{row['label']}.md)", *values])
    alike = sum(record["rate"] == usual for record in records.values())
    said = f"{alike} of {len(records)} schemes are best with {usual:g}, the rate that a study gives all of them."
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", said, describe_tuning(tuned)])


def pages() -> Pages:
    """Return the pages with their generated parts."""
    results = Results(FOLDER)
    parts = {"table": table, "sinusoidal": sentences, "beyond": beyond, "made": made}
    found = {name: write_part(results) for name, write_part in parts.items()}
    found |= {"tuned": tuned_rates(load_study(TUNED), load_study(QUICK).plan["learning_rate"])}
    return {PAGE: found, PLAN_PAGE: {"quick": agreement(results)}}


if __name__ == "__main__":
    write(pages())
