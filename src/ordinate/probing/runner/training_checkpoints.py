"""The checkpoints of a training run, each as a model."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ordinate.core.checks import need
from ordinate.core.output_folder import nearest_folder
from ordinate.pretrained.checkpoint_files import CONFIG
from ordinate.probing._adapter import ModelAdapter
from ordinate.probing._attach import attach
from ordinate.probing.instrumentation.trained_length import model_name
from ordinate.training.checkpoint import CorruptCheckpointError, list_checkpoints, read_checkpoint, step_of

CHECKPOINTS = "checkpoints"
# the training module holds the model under this name
PREFIX = "model."


@dataclass(frozen=True)
class ModelSource:
    """A model to compare: that of a folder, or a checkpoint of its training.

    Args:
        folder: folder of the model.
        checkpoint: folder of the checkpoint whose weights it has; None: its own.
    """

    folder: Path
    checkpoint: Path | None = None

    @property
    def step(self) -> int | None:
        """Optimiser steps of the checkpoint; None: the folder's own weights."""
        return None if self.checkpoint is None else step_of(self.checkpoint)

    @property
    def name(self) -> str:
        """Name of the model, with the step of the checkpoint."""
        own = model_name(self.folder) or str(self.folder)
        return own if self.step is None else f"{own} step {self.step:,}"

    def attach(self, name: str) -> ModelAdapter:
        """Return an adapter of the model.

        Args:
            name: its name in reports.

        Raises:
            ValueError: the checkpoint is corrupt, or of another model.
            NotApplicable: the model cannot be instrumented.
        """
        adapter = attach(self.folder, name=name)
        if self.checkpoint is None:
            return adapter
        load_checkpoint(adapter.model, self.checkpoint)
        return adapter


def load_checkpoint(model: nn.Module, checkpoint: Path) -> None:
    """Load the weights of a training checkpoint into its model.

    Raises:
        ValueError: the checkpoint is corrupt, or has the weights of another model.
    """
    try:
        written = read_checkpoint(checkpoint)["state_dict"]
    except (CorruptCheckpointError, KeyError) as error:
        raise ValueError(f"a checkpoint must be whole; {checkpoint} is not ({error}); leave it out") from None
    weights = {name.removeprefix(PREFIX): x for name, x in written.items() if name.startswith(PREFIX)}
    own = {name: x.shape for name, x in model.state_dict().items()}
    fits = {name: x.shape for name, x in weights.items()} == own
    need(fits, "a checkpoint must have the weights of its run's model", f"{checkpoint} has others", "leave it out")
    model.load_state_dict(weights)


def model_sources(places: list[Path]) -> list[ModelSource]:
    """Return the models of these places: a model's folder, a checkpoint, or a run, whose checkpoints are taken.

    The folder of `ordinate train`, which has one run, is that run.

    Raises:
        ValueError: a place has no model, or is of a run whose training has not ended.
    """
    return [source for place in places for source in _sources(place)]


def _sources(place: Path) -> list[ModelSource]:
    if (place / CONFIG).is_file():
        return [ModelSource(place)]
    runs = sorted(one.parent for one in place.glob(f"runs/*/{CHECKPOINTS}"))
    place = runs[0] if len(runs) == 1 else place
    single = place.parent.name == CHECKPOINTS and place.is_dir()
    run = place.parents[1] if single else place.parent if place.name == CHECKPOINTS else place
    found = [place] if single else list_checkpoints(run / CHECKPOINTS)
    must = "a place to compare must be the folder of a model, of a run with checkpoints, or one of its checkpoints"
    came = f"{place} is none" if place.exists() else f"{place} does not exist"
    several = f"give a run of it, such as {runs[0]}" if runs else "give the folder of a run: studies/NAME/runs/RUN"
    remedy = nearest_folder(place, several)
    need(bool(found), must, came, remedy)
    ended = (run / "model" / CONFIG).is_file()
    need(ended, "a run must have ended: its model names the shape", f"{run} has none", "resume it first")
    return [ModelSource(run / "model", checkpoint) for checkpoint in found]
