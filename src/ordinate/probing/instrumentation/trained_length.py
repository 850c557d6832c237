"""The length of a model's training sequences, and the text of its training, as far as its files tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinate.data.corpus import Corpus
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.pretrained.checkpoint_files import read_config
from ordinate.study.plan import Plan
from ordinate.study.study_folder import StudyFolder

# fields of a config.json of transformers, in the order in which they are asked
CONFIG_FIELDS = ("max_position_embeddings", "max_seq_len", "seq_length", "n_positions")


@dataclass(frozen=True)
class Training:
    """What is known of the training of a model.

    Args:
        length: tokens of a training sequence; None: not known.
        source: where the length is written.
        plan: the plan of its study; None: it has none.
        data: folder of the prepared data of its study; None: it has none.
    """

    length: int | None = None
    source: str = ""
    plan: Plan | None = None
    data: Path | None = None

    @property
    def precision(self) -> str:
        """`bf16` or `fp32`, as in its training."""
        return "fp32" if self.plan is None else self.plan.precision

    def has_read(self, corpus: Corpus) -> bool:
        """Whether the model was trained on this text, except for what its study held out."""
        if self.plan is None:
            return False
        try:
            return resolve_corpus(self.plan.text).fingerprint() == corpus.fingerprint()
        except (ValueError, OSError):
            # the text of the training is not there any more
            return False


def training_of(model: object, folder: Path | None) -> Training:
    """Return what is known of the training of a model: by its study, or by the configuration of a published one.

    Args:
        model: the model.
        folder: its folder; None: it has none.
    """
    found = None if folder is None else _of_study(folder)
    if found is not None:
        return found
    config = getattr(model, "config", None)
    found_in = read_config(folder) if config is None and folder is not None else {}
    for name in CONFIG_FIELDS:
        length: Any = found_in.get(name) if config is None else getattr(config, name, None)
        if isinstance(length, int) and not isinstance(length, bool) and length > 0:
            return Training(length, f"{name} of its config.json")
    return Training()


def shared_study(trainings: Sequence[Training]) -> Training | None:
    """Return the training of models that one study has trained, if its prepared data are there; None otherwise."""
    first, folders = trainings[0], {training.data for training in trainings}
    there = first.plan is not None and first.data is not None and first.data.is_dir()
    return first if there and len(folders) == 1 else None


def model_name(model: object) -> str | None:
    """The name of a model's folder, or of its run if the folder is called model; None: it has no folder."""
    if not isinstance(model, str | Path):
        return None
    path = Path(model).resolve()
    return path.parent.name if path.name == "model" else path.name


def distinct_names(models: Sequence[object]) -> list[str]:
    """Name models by their folders; those of one name by the whole path, or by number."""
    names = [model_name(model) or type(model).__name__ for model in models]
    if len(set(names)) == len(names):
        return names
    paths = [str(model) if isinstance(model, str | Path) else name for model, name in zip(models, names, strict=True)]
    return paths if len(set(paths)) == len(paths) else [f"{name} ({place})" for place, name in enumerate(paths, 1)]


def _of_study(folder: Path) -> Training | None:
    """Return the training of the run whose model is in this folder; None if it is not in the folder of a study."""
    place = folder.resolve()
    if place.name != "model" or len(place.parents) < 3:
        return None
    study = StudyFolder(place.parents[2])
    try:
        whole = study.plan()
        run = next(run for run in whole.runs() if run.name == place.parent.name)
        plan = whole.for_run(run)
        data = study.data_of(plan, run.cell)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        # a model without a study, or one of another version: its length must be given
        return None
    return Training(plan.length, "the plan of its study", plan, data)
