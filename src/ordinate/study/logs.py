"""The losses and results of a run for the tools that people watch training with, by Lightning's loggers.

What is true stands in metrics.jsonl and result.json; a log can be deleted and lost without any loss.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ordinate.checks import need, need_known
from ordinate.files import write_json
from ordinate.study.folder import Folder
from ordinate.study.plan import Run

LOGS, CHOSEN = "logs", "logger.json"
# the package that each needs beside Lightning, as it is imported and installed
PACKAGES: dict[str, str | None] = {"csv": None, "tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


@runtime_checkable
class Logger(Protocol):
    """What Lightning's loggers do."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Say what was planned."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Say what was measured."""

    def finalize(self, status: str) -> None:
        """Write what is left."""


def need_logger(name: str) -> None:
    """Raise unless there is such a logger.

    Raises:
        ValueError: an unknown one, or one whose package is not installed.
    """
    need_known("logger", name, list(PACKAGES))
    package = PACKAGES[name]
    need(
        package is None or importlib.util.find_spec(package) is not None,
        f"--logger {name} needs {package}",
        "it is not installed",
        f"pip install {package}",
    )


class Log:
    """The log of one run, begun anew from its metrics.jsonl whenever the run goes on, so that no step is there twice.

    Args:
        logger: Lightning's.
    """

    def __init__(self, logger: Logger) -> None:
        self.logger, self.last = logger, 0

    def step(self, step: int, loss: float) -> None:
        """The loss of a step [nats a token]; one that is repeated from a checkpoint is the same as before."""
        if step <= self.last:
            return
        self.last = step
        self.logger.log_metrics({"loss": loss}, step)

    def result(self, result: Mapping[str, Any]) -> None:
        """What was measured in the end, at each length."""
        rows = {
            f"{name}/{row['times']}x": row[name]
            for row in result.get("lengths", [])
            for name in ("bits_per_byte", "accuracy", "nats_per_token")
            if row.get(name) is not None
        }
        if rows:
            self.logger.log_metrics(rows, result["step"])
        self.logger.finalize("success" if result["status"] == "done" else "failed")


def choose(folder: Folder, name: str | None) -> None:
    """Keep in the folder which logger is wanted, where every process of the study finds it; None: as before."""
    if name is not None:
        (folder.path / LOGS).mkdir(parents=True, exist_ok=True)
        write_json(folder.path / LOGS / CHOSEN, {"logger": name})


def chosen(folder: Folder) -> str | None:
    """Which logger is wanted, if one is."""
    path = folder.path / LOGS / CHOSEN
    return json.loads(path.read_text(encoding="utf-8"))["logger"] if path.exists() else None


def open_log(folder: Folder, run: Run) -> Log | None:
    """The log of a run, with the steps that it has done; None where none was asked for."""
    name = chosen(folder)
    if name is None:
        return None
    place = folder.path / LOGS / name / run.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    log = Log(_MAKERS[name](place, folder.path.name, run.name))
    log.logger.log_hyperparams({"run": run.name, **folder.plan().model_dump(mode="json")})
    return log


def replay(log: Log, metrics: Path) -> None:
    """Log the steps that a run has done already."""
    for line in metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []:
        row = json.loads(line)
        log.step(row["step"], row["loss"])


def _csv(place: Path, study: str, run: str) -> Logger:
    return import_module("pytorch_lightning.loggers").CSVLogger(place.parent, name="", version=run)


def _tensorboard(place: Path, study: str, run: str) -> Logger:
    loggers = import_module("pytorch_lightning.loggers")
    return loggers.TensorBoardLogger(place.parent, name="", version=run, default_hp_metric=False)


def _wandb(place: Path, study: str, run: str) -> Logger:
    # nothing leaves this machine unless that was said
    offline = os.environ.get("WANDB_MODE", "offline") != "online"
    return import_module("pytorch_lightning.loggers").WandbLogger(
        name=run, project=study, save_dir=place, offline=offline
    )


def _mlflow(place: Path, study: str, run: str) -> Logger:
    # a server is taken only where MLFLOW_TRACKING_URI names one
    return import_module("pytorch_lightning.loggers").MLFlowLogger(study, run, save_dir=str(place.parent / "mlruns"))


_MAKERS: dict[str, Callable[[Path, str, str], Logger]] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
