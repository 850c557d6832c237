"""Running replications: select, measure, judge, save."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ordinate import __version__
from ordinate.core import catalog
from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.checks import need, need_seed
from ordinate.core.progress import OnProgress, Progress, for_item, ignore
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.runner.default_text import default_text
from ordinate.probing.runner.probe_data import sample_text
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, ReplicationResult, judge
from ordinate.replications.trained import TrainedReplication
from ordinate.replications.trained_runs import TrainedRuns
from ordinate.replications.training import read_runs

PAPERS = "ordinate.replications.papers"
FORMAT, ALL = 1, "all"
# texts for claims that need a model
TEXTS, TOKENS = 64, 128


def replicate(
    name: str,
    model: object | None = None,
    *,
    text: str | None = None,
    seed: int = 0,
    trained: Path | None = None,
    on_progress: OnProgress = ignore,
) -> ReplicationResult:
    """Measure the claims of one paper again.

    Args:
        name: name of the replication: su, saponati, ... (`ordinate list replications`).
        model: an Ordinate or transformers model, the folder of one, or a `ModelAdapter`, for the claims that need
            one; None: only the others are measured.
        text: texts for the model: a corpus by name, or a file or folder; None: the text of its study, the standard
            library of Python for another Ordinate model, English prose for any other (`default_text`).
        seed: random seed.
        trained: folder with what was measured on trained models, for the claims about training; None: these are not
            measured.
        on_progress: progress callback.

    Raises:
        ValueError: an unknown name, a model that no claim of this paper is measured on, or numbers in the folder that
            are damaged or come from other hyperparameters.
        NotApplicable: the model cannot be instrumented.
    """
    member = load(name)
    return run(member, name, with_trained(with_model(model, text, seed), member, name, trained), on_progress)


def with_trained(subject: Subject, member: Replication, name: str, folder: Path | None) -> Subject:
    """Return a subject with what was measured on the trained models of this replication, if it is in the folder.

    Raises:
        ValueError: the file is damaged, or comes from other hyperparameters.
    """
    if folder is None or not isinstance(member, TrainedReplication):
        return subject
    path = trained_path(folder, name)
    runs = read_runs(path, member) if path.is_file() else None
    return replace(subject, runs=runs) if runs is not None and runs.complete else subject


def trained_path(folder: Path, name: str) -> Path:
    """Return the file with what was measured on the trained models of a replication."""
    return folder / f"{name}.json"


def with_model(model: object | None, text: str | None = None, seed: int = 0) -> Subject:
    """Return what replications measure: a model with its texts, or nothing but a seed; arguments as in `replicate`.

    Raises:
        ValueError: a text without a model, an unknown text, or a negative seed.
    """
    need_seed(seed)
    if model is None:
        need(text is None, "a text is read by a model", f"got {text!r} and no model", "give the folder of a model")
        return Subject(seed=seed)
    if text is not None:
        # before a model is loaded
        resolve_corpus(text)
    subject = model if isinstance(model, ModelAdapter) else attach(model, name=_name(model))
    folder = Path(model) if isinstance(model, str | Path) else None
    return Subject(subject, _texts(subject, text, folder), seed)


def load(name: str) -> Replication:
    """Return the replication of this name.

    Raises:
        ValueError: there is none (the closest name is suggested).
    """
    return catalog.load(PAPERS, Replication, name)()


def selected(names: Sequence[str], model: bool = False) -> dict[str, Replication]:
    """Return replications by name, in their order.

    Args:
        names: names, or "all".
        model: whether a model is given; "all" then means those with a claim that needs one.

    Raises:
        ValueError: an unknown name.
    """
    known = catalog.names(PAPERS)
    every = ALL in names
    found = {name: load(name) for name in dict.fromkeys(known if every else names)}
    kept = {name: one for name, one in found.items() if not (every and model) or _measures_models(one)}
    return dict(sorted(kept.items(), key=lambda item: item[1].order))


def run(member: Replication, name: str, subject: Subject, on_progress: OnProgress = ignore) -> ReplicationResult:
    """Run the controls, measure the claims and judge them.

    Raises:
        ValueError: a model is given, and no claim needs one.
    """
    need(
        subject.model is None or _measures_models(member),
        f"a model is measured by replications with a claim about models; {name} has none",
        f"got {'' if subject.model is None else subject.model.info.name}",
        f"run `ordinate replicate {name}` without a model",
    )
    began, report = time.perf_counter(), for_item(on_progress, name)
    report(Progress(stage="measuring", done=0.0, total=1.0))
    controls = _controls(member, subject)
    found = dict(member.measure(replace(subject, on_progress=report)))
    # a verdict rests on every control of its paper
    judged = tuple(judge(claim, found[claim.name], controls) for claim in member.claims if claim.name in found)
    result = ReplicationResult(
        name=name,
        paper=member.paper,
        claims=judged,
        controls=controls,
        not_measured={claim.name: _lacks(claim, name, subject) for claim in member.claims if claim.name not in found},
        model="" if subject.model is None else subject.model.info.name,
        texts="" if subject.texts is None else subject.texts.source,
        seed=subject.seed,
        seconds=round(time.perf_counter() - began, 2),
        trained="" if subject.runs is None else _training(subject.runs),
        version=__version__,
    )
    report(Progress(stage="measured", done=1.0, total=1.0, message=result.headline))
    return result


def save(path: Path, result: ReplicationResult) -> None:
    """Write a result as JSON with a checksum."""
    content: dict[str, Any] = {"format": FORMAT, "result": result.model_dump(mode="json")}
    write_checksummed(path, content)


def read(path: Path) -> ReplicationResult:
    """Read a result.

    Raises:
        ValueError: the file is damaged, or of another format.
    """
    content = read_checksummed(path, "replicate it again")
    need(
        content.get("format") == FORMAT,
        f"the result of a replication must have format {FORMAT}",
        f"{path} has {content.get('format')!r}",
        "replicate it again",
    )
    return ReplicationResult.model_validate(content["result"])


def _measures_models(member: Replication) -> bool:
    return any(claim.needs == "model" for claim in member.claims)


def _controls(member: Replication, subject: Subject) -> tuple[Control, ...]:
    controls = tuple(member.controls(subject.seed))
    if subject.runs is None or not isinstance(member, TrainedReplication):
        return controls
    return *controls, member.learnt(subject.runs)


def _lacks(claim: Claim, name: str, subject: Subject) -> str:
    """Why a claim was not measured."""
    if claim.needs == "training":
        return f"it needs trained models: ordinate replicate {name} --train"
    return "it needs a model" if subject.model is None else "it does not apply to this model"


def _training(runs: TrainedRuns) -> str:
    return f"{len(runs.runs)} models, {runs.seconds / 60:.1f} minutes of {runs.processor}"


def _name(model: object) -> str | None:
    """Name of a folder, or of the one around it if it is called model; None: that of the model."""
    if not isinstance(model, str | Path):
        return None
    path = Path(model).resolve()
    return path.parent.name if path.name == "model" else path.name


def _texts(subject: ModelAdapter, text: str | None, folder: Path | None) -> ProbeData | None:
    if subject.info.kind == "vision":
        return None
    return sample_text(subject, text or default_text(subject, folder).text, sequences=TEXTS, length=TOKENS)
