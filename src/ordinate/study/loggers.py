"""Experiment loggers (CSV, TensorBoard, Weights & Biases, MLflow) for the runs of a study, through Lightning.

Logs are copies: metrics.jsonl and result.json are authoritative, and logs may be deleted.
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

from ordinate.core.checks import need, need_known
from ordinate.core.progress import Progress
from ordinate.evaluation.quantity import Quantity
from ordinate.study.data_source import source_of
from ordinate.study.result_file import read_result
from ordinate.study.run import STATES
from ordinate.study.study_folder import StudyFolder

LOG_FOLDER = "logs"
# the package that each logger needs beside Lightning (import name and distribution name agree)
PACKAGES: dict[str, str | None] = {"csv": None, "tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


@runtime_checkable
class Logger(Protocol):
    """The part of Lightning's logger interface that is used here."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Log the options of the plan."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Log metrics of a step."""

    def finalize(self, status: str) -> None:
        """Write what is buffered and close."""


def need_logger(name: str) -> None:
    """Check that a logger exists and its package is installed.

    Raises:
        ValueError: an unknown logger, or one whose package is not installed.
    """
    need_known("logger", name, list(PACKAGES))
    package = PACKAGES[name]
    need(
        package is None or importlib.util.find_spec(package) is not None,
        f"--logger {name} needs {package}",
        "it is not installed",
        f"pip install {package}",
    )


class RunLogger:
    """The log of one run.

    Args:
        logger: Lightning logger.
    """

    def __init__(self, logger: Logger) -> None:
        self.logger, self.last, self.read = logger, 0, 0

    def log_new_losses(self, metrics: Path) -> None:
        """Log the losses of new steps; steps repeated after a resume have the same losses and are skipped."""
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

    def result(self, result: Mapping[str, Any], quantity: Quantity) -> None:
        """Log the values of the report at each evaluation length, with the ends of their 95 % intervals.

        Args:
            result: the contents of result.json.
            quantity: what is measured of its model.
        """
        numbers: dict[str, float] = {}
        for row in result.get("lengths", []):
            if quantity.has_value(row):
                numbers |= _published(row, quantity)
        if numbers:
            self.logger.log_metrics(numbers, result["step"])
        self.logger.finalize("success" if result["status"] == "done" else "failed")


def _published(row: Mapping[str, Any], quantity: Quantity) -> dict[str, float]:
    """The value at one length, as the report has it, and further numbers of the result."""
    amounts, sizes = quantity.table(row)
    found = {quantity.field: quantity.value(amounts[None], sizes)}
    if bounds := quantity.interval(amounts[None], sizes):
        found |= {f"{quantity.field}_low": bounds[0], f"{quantity.field}_high": bounds[1]}
    more = {name: row[name] for name in ("accuracy", "nats_per_token") if row.get(name) is not None}
    return {f"{name}/{row['times']}x": number for name, number in {**more, **found}.items()}


class StudyLogger:
    """Loggers of all runs of a study; each log is rebuilt from metrics.jsonl, so that no step appears twice.

    Args:
        name: name of the logger.
        folder: the study's folder; logs are in its subfolder `logs`.
    Raises:
        ValueError: an unknown logger, or one whose package is not installed.
    """

    def __init__(self, name: str, folder: StudyFolder) -> None:
        need_logger(name)
        self.name, self.folder = name, folder
        self.logs: dict[str, RunLogger] = {}
        # some logging libraries fail when two runs are opened at the same time
        self._lock = Lock()

    def on_progress(self, progress: Progress) -> None:
        """Log what a run has written since its last event; close the log when the run ends."""
        run = progress.item
        if not run:
            return
        with self._lock:
            log = self.logs.get(run) or self._open(run)
            log.log_new_losses(self.folder.run(run) / "checkpoints" / "metrics.jsonl")
            if progress.stage in STATES:
                result = read_result(self.folder.result(run))
                plan = self.folder.plan().for_cell(result.get("run", {}).get("cell", {}))
                log.result(result, source_of(plan).quantity)
                del self.logs[run]

    def close(self) -> None:
        """Close the logs of runs that have not ended."""
        with self._lock:
            for log in self.logs.values():
                log.logger.finalize("failed")
            self.logs.clear()

    def _open(self, run: str) -> RunLogger:
        place = self.folder.path / LOG_FOLDER / self.name / run
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        log = RunLogger(_MAKERS[self.name](place, self.folder.path.name, run))
        log.logger.log_hyperparams({"run": run, **self.folder.plan().model_dump(mode="json")})
        self.logs[run] = log
        return log


def _csv(place: Path, study: str, run: str) -> Logger:
    return import_module("pytorch_lightning.loggers").CSVLogger(place.parent, name="", version=run)


def _tensorboard(place: Path, study: str, run: str) -> Logger:
    loggers = import_module("pytorch_lightning.loggers")
    return loggers.TensorBoardLogger(place.parent, name="", version=run, default_hp_metric=False)


def _wandb(place: Path, study: str, run: str) -> Logger:
    # offline unless the user enables uploads by WANDB_MODE
    offline = os.environ.get("WANDB_MODE", "offline") != "online"
    if offline:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    loggers = import_module("pytorch_lightning.loggers")

    class Finished(loggers.WandbLogger):
        """Lightning's logger, but finishing its run; otherwise all runs stay open until the process exits."""

        def finalize(self, status: str) -> None:
            super().finalize(status)
            self.experiment.finish(exit_code=int(status != "success"))

    # several runs are open at a time, and this process's console output belongs to all of them
    quiet = {"console": "off", "silent": True}
    return Finished(name=run, project=study, save_dir=place, offline=offline, reinit="create_new", settings=quiet)


def _mlflow(place: Path, study: str, run: str) -> Logger:
    loggers = import_module("pytorch_lightning.loggers")
    # a server is used only if MLFLOW_TRACKING_URI names one
    if server := os.environ.get("MLFLOW_TRACKING_URI"):
        return loggers.MLFlowLogger(study, run, tracking_uri=server)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    base = f"sqlite:///{place.parent.resolve() / 'mlflow.db'}"
    logger = loggers.MLFlowLogger(study, run, tracking_uri=base, artifact_location=place.parent.resolve().as_uri())
    client = logger.experiment
    # Lightning sets this variable, which would redirect later studies of this process
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    # remove logs of earlier attempts of the same run
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
