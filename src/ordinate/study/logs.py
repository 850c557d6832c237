"""The losses and results of a run for the tools that people watch training with, by Lightning's loggers.

What is true stands in metrics.jsonl and result.json; a log can be deleted and lost without any loss.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from ordinate.checks import need, need_known
from ordinate.files import read_sealed
from ordinate.study.engine import News
from ordinate.study.folder import Folder
from ordinate.study.plan import Run
from ordinate.study.state import STATES

LOGS = "logs"
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
    """The log of one run.

    Args:
        logger: Lightning's.
    """

    def __init__(self, logger: Logger) -> None:
        self.logger, self.last, self.read = logger, 0, 0

    def catch_up(self, metrics: Path) -> None:
        """The loss of each step since the last one that is known; one repeated from a checkpoint is as before."""
        if not metrics.exists():
            return
        with metrics.open("rb") as file:
            file.seek(self.read)
            whole = file.read().split(b"\n")[:-1]
        self.read += sum(len(line) + 1 for line in whole)
        for line in whole:
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                if row["step"] > self.last:
                    self.last = row["step"]
                    self.logger.log_metrics({"loss": row["loss"]}, self.last)

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


class Logs:
    """The logs of a study's runs, each made anew from its metrics.jsonl, so that no step is there twice.

    Args:
        name: which logger.
        folder: of the study; logs lie in its folder `logs`.
    Raises:
        ValueError: there is no such logger, or its package is not installed.
    """

    def __init__(self, name: str, folder: Folder) -> None:
        need_logger(name)
        self.name, self.folder = name, folder
        self.logs: dict[str, Log] = {}
        # tools that begin twice at a time stumble over themselves
        self._lock = Lock()

    def news(self, news: News) -> None:
        """Log what a run has written since it was last heard of."""
        run = news.run
        with self._lock:
            log = self.logs.get(run.name) or self._open(run)
            log.catch_up(self.folder.run(run) / "checkpoints" / "metrics.jsonl")
            if news.stage in STATES:
                log.result(read_sealed(self.folder.result(run)))
                del self.logs[run.name]

    def close(self) -> None:
        """Write what is left of runs that have not ended."""
        with self._lock:
            for log in self.logs.values():
                log.logger.finalize("failed")
            self.logs.clear()

    def _open(self, run: Run) -> Log:
        place = self.folder.path / LOGS / self.name / run.name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        log = Log(_MAKERS[self.name](place, self.folder.path.name, run.name))
        log.logger.log_hyperparams({"run": run.name, **self.folder.plan().model_dump(mode="json")})
        self.logs[run.name] = log
        return log


def _csv(place: Path, study: str, run: str) -> Logger:
    return import_module("pytorch_lightning.loggers").CSVLogger(place.parent, name="", version=run)


def _tensorboard(place: Path, study: str, run: str) -> Logger:
    loggers = import_module("pytorch_lightning.loggers")
    return loggers.TensorBoardLogger(place.parent, name="", version=run, default_hp_metric=False)


def _wandb(place: Path, study: str, run: str) -> Logger:
    # nothing leaves this machine unless that was said
    offline = os.environ.get("WANDB_MODE", "offline") != "online"
    if offline:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    loggers = import_module("pytorch_lightning.loggers")

    class Finished(loggers.WandbLogger):
        """Lightning's, which would leave every run open until this process ends."""

        def finalize(self, status: str) -> None:
            super().finalize(status)
            self.experiment.finish(exit_code=int(status != "success"))

    # several runs are open at a time, and what is printed here is of all of them
    quiet = {"console": "off", "silent": True}
    return Finished(name=run, project=study, save_dir=place, offline=offline, reinit="create_new", settings=quiet)


def _mlflow(place: Path, study: str, run: str) -> Logger:
    loggers = import_module("pytorch_lightning.loggers")
    # a server is taken only where MLFLOW_TRACKING_URI names one
    if server := os.environ.get("MLFLOW_TRACKING_URI"):
        return loggers.MLFlowLogger(study, run, tracking_uri=server)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    base = f"sqlite:///{place.parent.resolve() / 'mlflow.db'}"
    logger = loggers.MLFlowLogger(study, run, tracking_uri=base, artifact_location=place.parent.resolve().as_uri())
    client = logger.experiment
    # beginning sets it, for every later study of this process too
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    # what an earlier try has logged of this run
    for old in client.search_runs([logger.experiment_id], f"attributes.run_name = '{run}'"):
        if old.info.run_id != logger.run_id:
            client.delete_run(old.info.run_id)
    return logger


_MAKERS: dict[str, Callable[[Path, str, str], Logger]] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
