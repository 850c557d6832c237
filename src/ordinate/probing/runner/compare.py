"""Compare models, or checkpoints of a training run, on the same texts: the Python twin of `ordinate compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ordinate.core.checks import need, need_seed
from ordinate.core.finding import Finding, Table
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.evaluation.outcome import Evaluation
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing.measures.head_kinds import HeadKinds, head_kinds
from ordinate.probing.measures.head_matching import HeadMatches, match_heads
from ordinate.probing.measures.kinds_over_steps import KindOverSteps, kinds_over_steps
from ordinate.probing.runner.compare_finding import compare_finding, run_of
from ordinate.probing.runner.default_text import common_text
from ordinate.probing.runner.evaluate import TextChoice, asked_lengths, evaluate_subjects, text_subject
from ordinate.probing.runner.probe_data import sample_text
from ordinate.probing.runner.training_checkpoints import ModelSource, model_sources
from ordinate.report.finding_files import save_finding
from ordinate.report.finding_page import finding_page
from ordinate.report.findings import notebook_card

# texts on which heads are matched, and their tokens
MATCH_TEXTS, MATCH_LENGTH = 32, 64


@dataclass(frozen=True, eq=False)
class Comparison:
    """Models beside each other; `print` shows the answer, a notebook the page.

    Args:
        evaluation: values and paired differences by length and by position.
        matches: heads of each model matched with those of the one before it.
        kinds: kinds of heads of each model, by name.
        finding: the answer with its tables and charts.
    """

    evaluation: Evaluation
    matches: tuple[HeadMatches, ...]
    kinds: Mapping[str, HeadKinds]
    finding: Finding

    def tables(self) -> dict[str, Table]:
        """Return all tables by the name of their file."""
        return {table.title.lower().replace(" ", "_"): table for table in self.finding.tables}

    def page(self, command: str = "") -> str:
        """Return a self-contained HTML page.

        Args:
            command: the command that made it; empty: none.
        """
        names = ", ".join(model.name for model in self.evaluation.models)
        about = f"{names}, on {self.evaluation.count} {self.evaluation.units} of {self.evaluation.data}."
        return finding_page(self.finding, about, command=command)

    def save(self, folder: str | Path, *, command: str = "", ending: str = ".csv") -> list[Path]:
        """Write the page, the tables and the charts (SVG) to a folder; return the files.

        Args:
            folder: the folder; it is made.
            command: the command that made it.
            ending: format of the tables: .csv or .parquet.
        """
        return save_finding(self.finding, folder, "compare", self.page(command), self.tables(), ending)

    def __str__(self) -> str:
        return f"{self.finding.title}\n{self.finding.headline}"

    def _repr_html_(self) -> str:
        return notebook_card(self.finding)


def compare(
    *places: str | Path,
    text: str | None = None,
    lengths: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    trained_length: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    on_progress: OnProgress = ignore,
) -> Comparison:
    """Compare language models on the same held-out texts: losses by length and by position, and their heads.

    Args:
        places: folders of models, of training runs, whose checkpoints are taken, or of single checkpoints.
        text: a corpus by name, or a file or folder; None: as `evaluate` chooses.
        lengths: multiples of the length that each model was trained with; None: 1 2 4 8, or `tokens`.
        tokens: lengths in tokens, in place of `lengths`.
        trained_length: tokens of the training sequences; None: as the study or config.json of the model says.
        samples: largest number of pieces of the longest length; None: as many as the study took, or 64.
        seed: seed of random texts and of the bootstrap.
        on_progress: receives the fraction done.

    Raises:
        ValueError: fewer than two models, a folder without one, a corrupt checkpoint, or as of `evaluate`.
        NotApplicable: a model cannot be attached.
    """
    need_seed(seed)
    if text is not None:
        # before a model is loaded
        resolve_corpus(text)
    asked = asked_lengths(lengths, tokens)
    sources = model_sources([Path(place) for place in places])
    need(len(sources) > 1, "a comparison needs two models or checkpoints", f"got {len(sources)}", "give another")
    names = _distinct(sources)
    adapters = []
    for source, name in zip(sources, names, strict=True):
        on_progress(Progress(item=name, stage="attaching"))
        adapters.append(source.attach(name))
    known = zip(adapters, names, sources, strict=True)
    subjects = [text_subject(adapter, name, source.folder, trained_length) for adapter, name, source in known]
    chosen = TextChoice(text, common_text(adapters))
    evaluation = evaluate_subjects(subjects, chosen, asked, samples, on_progress)
    on_progress(Progress(item="heads", stage="measuring"))
    notes: list[str] = []
    matches = _matches(adapters, text or chosen.otherwise, seed, notes)
    kinds = _kinds(adapters, seed, notes)
    steps = {name: source.step for name, source in zip(names, sources, strict=True) if source.step is not None}
    over = _over_steps(kinds, steps, seed)
    finding = compare_finding(evaluation, matches, kinds, steps, over, notes)
    return Comparison(evaluation, tuple(matches), kinds, finding)


def _distinct(sources: Sequence[ModelSource]) -> list[str]:
    names = [source.name for source in sources]
    paths = [str(source.checkpoint or source.folder) for source in sources]
    repeated = [path for path in paths if paths.count(path) > 1]
    need(not repeated, "each model is compared once", f"{', '.join(dict.fromkeys(repeated))} twice", "leave one out")
    return names if len(set(names)) == len(names) else paths


def _matches(adapters: Sequence[ModelAdapter], text: str, seed: int, notes: list[str]) -> list[HeadMatches]:
    """Match the heads of each model with those of the one before it, where both read the same tokens."""
    found = []
    for first, second in pairwise(adapters):
        pair = f"Heads of {first.info.name} and {second.info.name} are not matched"
        tokenizers = [one.tokenizer.digest for one in (first, second) if one.tokenizer is not None]
        if len(set(tokenizers)) != 1 or first.info.first_token != second.info.first_token:
            notes.append(f"{pair}: they read other tokens.")
            continue
        longest = [one.info.max_length for one in (first, second) if one.info.max_length is not None]
        try:
            ids = sample_text(first, text, sequences=MATCH_TEXTS, length=min([MATCH_LENGTH, *longest])).ids
            if ids is not None:
                found.append(match_heads(first, second, ids, seed=seed))
        except (NotApplicable, ValueError) as reason:
            notes.append(f"{pair}: {reason}.")
    return found


def _kinds(adapters: Sequence[ModelAdapter], seed: int, notes: list[str]) -> dict[str, HeadKinds]:
    found = {}
    for adapter in adapters:
        try:
            found[adapter.info.name] = head_kinds(adapter, seed=seed)
        except NotApplicable as reason:
            notes.append(f"Kinds of heads of {adapter.info.name} cannot be told: {reason}.")
    return found


def _over_steps(
    kinds: Mapping[str, HeadKinds], steps: Mapping[str, int], seed: int
) -> dict[str, list[KindOverSteps]]:
    """Return of each run with two measured checkpoints or more which kinds of heads appear."""
    found = {}
    known = sorted((name for name in kinds if name in steps), key=lambda name: steps[name])
    for run in dict.fromkeys(run_of(name) for name in steps):
        own = [name for name in known if run_of(name) == run]
        if len(own) > 1:
            found[run] = kinds_over_steps([kinds[name] for name in own], [steps[name] for name in own], seed=seed)
    return found
