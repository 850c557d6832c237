"""Write the results of docs/baselines.md from the study of token embeddings: `python .ci/baselines.py`.

The study is run by `ordinate study --config .ci/baselines.toml --out studies/baselines`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from pages import Pages, write

from ordinate.evaluation.comparison import Comparison, Measurements, compare_all
from ordinate.models.shape import Shape
from ordinate.report.read import Study, load_cells, load_manifest
from ordinate.report.study_facts import subtitle
from ordinate.report.summary import ArmSummary, study_tables, summarise_all
from ordinate.study.options import FORMER_VALUES
from ordinate.study.plan import Plan
from ordinate.study.token_embeddings import with_token_embeddings

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "baselines.md", ROOT / "studies" / "baselines"
GPT2 = FORMER_VALUES["embedding_scale"]


class Baseline(NamedTuple):
    """A scheme with one of the two kinds of token embeddings."""

    scheme: str
    scale: float

    @property
    def words(self) -> str:
        """Name in sentences."""
        return f"{self.scheme} with the token embeddings of {'GPT-2' if self.scale == GPT2 else 'the paper'}"


class Results:
    """The results of the study.

    Args:
        folder: of the study.
    """

    def __init__(self, folder: Path) -> None:
        cells = load_cells(folder, load_manifest(folder))
        self.studies: dict[float, Study] = {values["embedding_scale"]: study for values, study in cells}
        self.scales = sorted(self.studies)
        self.first = self.studies[GPT2]
        ranked, _ = summarise_all(list(self.studies.values()))
        self.entries: dict[Baseline, ArmSummary] = {
            Baseline(entry.label, scale): entry
            for scale, entries in zip(self.studies, ranked, strict=True)
            for entry in entries
        }
        self.tables: dict[Baseline, Measurements] = {
            Baseline(label, scale): table
            for scale, study in self.studies.items()
            for label, table in study_tables(study, longest=False).items()
        }

    @property
    def schemes(self) -> list[str]:
        """The schemes, the best with the default token embeddings first."""
        return sorted(self.first.arms, key=lambda scheme: self.entries[default(scheme, self)].trained.value)

    def compare(self, pairs: Iterable[tuple[Baseline, Baseline]]) -> Mapping[tuple[Baseline, Baseline], Comparison]:
        """Compare pairs of baselines, corrected together for multiple testing."""
        wanted = list(pairs)
        groups = [{str(place): self.tables[one] for place, one in enumerate(pair)} for pair in wanted]
        return {pair: found["0", "1"] for pair, found in zip(wanted, compare_all(groups), strict=True)}


def default(scheme: str, results: Results) -> Baseline:
    """Return the scheme with the token embeddings that a study gives it by default."""
    plan = Plan.stored(results.first.plan).model_copy(update=dict.fromkeys(("embedding_scale", "embedding_std")))
    shape = Shape(vocabulary=2, width=plan.width, layers=plan.layers, heads=plan.heads, scheme=scheme)
    with torch.device("meta"):
        return Baseline(scheme, with_token_embeddings(shape, plan).embedding_scale)


def interval(found: Comparison) -> str:
    """Format a difference with its interval."""
    low, high = found.interval or (float("nan"), float("nan"))
    return f"{found.difference:+.3f} ({low:+.3f} to {high:+.3f})"


def table(results: Results) -> str:
    """Table of all baselines, with the paired difference between the two kinds of token embeddings."""
    one, other = results.scales
    made = results.compare((Baseline(label, other), Baseline(label, one)) for label in results.schemes)
    lines = [["scheme", "as in GPT-2", "as in the paper", "difference", "default"], ["---"] * 5]
    for label in results.schemes:
        both = [Baseline(label, one), Baseline(label, other)]
        values = [f"{results.entries[each].trained.value:.3f}" for each in both]
        found = made[both[1], both[0]]
        chosen = "the paper" if default(label, results) == both[1] else "GPT-2"
        lines.append([f"[{label}](schemes/{label}.md)", *values, interval(found) + "*" * found.significant, chosen])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sentences(results: Results) -> str:
    """State how sinusoidal compares with learned and none."""
    one, other = results.scales
    learned, none = Baseline("learned", one), Baseline("none", one)
    pairs = [
        (Baseline("sinusoidal", other), learned),
        (Baseline("sinusoidal", one), learned),
        (Baseline("sinusoidal", other), Baseline("learned", other)),
        (none, learned),
    ]
    return "\n".join(f"- {say(pair, found)}" for pair, found in results.compare(pairs).items())


def say(pair: tuple[Baseline, Baseline], found: Comparison) -> str:
    """Say which of two baselines is better, by how much."""
    verdict = "worse" if found.difference > 0 else "better"
    told = f"{verdict} than" if found.significant else "not significantly different from"
    return f"{pair[0].words} is **{told}** {pair[1].words}: {interval(found)} bits per byte."


def made(results: Results) -> str:
    """Say how the study was made."""
    plan = results.first.plan
    documents = next(iter(results.tables.values())).sizes.size
    return (
        f"{subtitle(results.first)} Evaluated on {documents} held-out files of the text `{plan['text']}`, at the "
        f"trained length. Command: `{results.first.manifest['command']}`."
    )


def pages() -> Pages:
    """Return the page with its generated parts."""
    results = Results(FOLDER)
    return {PAGE: {"table": table(results), "sinusoidal": sentences(results), "made": made(results)}}


if __name__ == "__main__":
    write(pages())
