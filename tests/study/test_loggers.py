"""Experiment loggers: losses and results in other tools' formats."""

import csv
import json
import math
import os

import pytest

from ordinate.core.atomic_files import write_checksummed
from ordinate.core.progress import Progress
from ordinate.study import loggers
from ordinate.study.loggers import StudyLogger, need_logger
from ordinate.study.plan import Plan
from ordinate.study.study_folder import StudyFolder

PLAN = Plan(schemes=("rope",))
(RUN,) = PLAN.runs()
RESULT = {
    "format": 2,
    "status": "done",
    "step": 4,
    "lengths": [
        {
            "times": 1,
            "nats_per_token": 1.7,
            # as an earlier version computed them; the report and the logs compute them from the documents
            "bits_per_byte": 2.4,
            "interval": [0.0, 9.0],
            "documents": [{"name": str(size), "bytes": size, "nats": 2.5 * size * math.log(2)} for size in (2, 4, 6)],
        },
        {"times": 2, "nats_per_token": None, "reason": "none"},
    ],
}


@pytest.fixture
def folder(tmp_path):
    made = StudyFolder(tmp_path / "study")
    made.path.mkdir()
    made.open(PLAN, {"text": {"name": "x"}}, "ordinate study")
    return made


def written(folder, name):
    """A run whose third step was lost with its process, and a second attempt that finishes."""
    metrics = folder.run(RUN) / "checkpoints" / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    lines = [json.dumps({"step": step, "loss": 5.0 - step}) + "\n" for step in range(1, 5)]
    for tries in (("".join(lines[:3]),), ("".join(lines[:2]), "".join(lines[:3]) + lines[3][:9], "".join(lines))):
        told = StudyLogger(name, folder)
        for text in tries:
            told.on_progress(Progress(RUN.name, "training"))
            metrics.write_text(text)
            told.on_progress(Progress(RUN.name, "training", 2, loss=2.0))
        if len(tries) == 1:
            # interrupted here
            told.close()
    write_checksummed(folder.result(RUN), RESULT | {"run": RUN.as_record})
    told.on_progress(Progress(RUN.name, "done"))
    assert told.logs == {}
    return folder.path / "logs" / name / RUN.name


@pytest.mark.filterwarnings("ignore")
def test_csv_has_each_step_once(folder):
    rows = list(csv.DictReader((written(folder, "csv") / "metrics.csv").open()))
    losses = {int(row["step"]): float(row["loss"]) for row in rows if row["loss"]}
    assert losses == {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0}
    assert [float(row["bits_per_byte/1x"]) for row in rows if row["bits_per_byte/1x"]] == [2.5]
    # the interval of the report, and not the stored one
    ends = [float(rows[-1][f"bits_per_byte_{end}/1x"]) for end in ("low", "high")]
    assert ends == pytest.approx([2.5, 2.5])


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_each_step_once(folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(written(folder, "tensorboard")))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 4), (2, 3), (3, 2), (4, 1)]
    assert [event.value for event in events.Scalars("bits_per_byte/1x")] == [2.5]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_each_run_and_each_step_once(folder, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    from mlflow.tracking import MlflowClient

    base = written(folder, "mlflow").parent / "mlflow.db"
    client = MlflowClient(f"sqlite:///{base}")
    (run,) = client.search_runs([client.get_experiment_by_name("study").experiment_id])
    assert (run.info.run_name, run.info.status) == ("rope-s0", "FINISHED")
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value) for one in losses] == [(1, 4), (2, 3), (3, 2), (4, 1)]
    assert run.data.metrics["bits_per_byte/1x"] == 2.5
    assert run.data.params["run"] == "rope-s0"


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_separate_runs_that_are_finished(folder, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    told, other = StudyLogger("wandb", folder), RUN.model_copy(update={"label": "none", "scheme": "none"})
    for run in (RUN, other):
        metrics = folder.run(run) / "checkpoints" / "metrics.jsonl"
        metrics.parent.mkdir(parents=True)
        metrics.write_text(json.dumps({"step": 1, "loss": 4.0}) + "\n")
        told.on_progress(Progress(run.name, "training", 1, loss=4.0))
        write_checksummed(folder.result(run), RESULT | {"run": run.as_record})
    runs = [log.logger.experiment for log in told.logs.values()]
    assert [(run.name, run.summary["loss"]) for run in runs] == [("rope-s0", 4.0), ("none-s0", 4.0)]
    for run in (RUN, other):
        told.on_progress(Progress(run.name, "done"))
    with pytest.raises(wandb.errors.UsageError):
        runs[0].log({"loss": 1.0})
    assert len(list((folder.path / "logs" / "wandb").glob("*-s0/wandb/offline-run-*/*.wandb"))) == 2


def test_a_missing_logger_is_reported_with_what_to_install(monkeypatch):
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    need_logger("csv")
    with pytest.raises(ValueError, match="--logger wandb needs wandb; it is not installed; pip install wandb"):
        need_logger("wandb")
    with pytest.raises(ValueError, match="did you mean 'tensorboard'"):
        need_logger("tensorbord")


def test_nothing_leaves_the_machine_unasked(folder, monkeypatch):
    made = []
    monkeypatch.setattr(loggers, "need_logger", lambda name: None)
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "WANDB_ERROR_REPORTING", "MLFLOW_DISABLE_TELEMETRY"):
        # variables set by Lightning are removed afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(
        loggers, "import_module", lambda name: type("loggers", (), {"WandbLogger": Fake, "MLFlowLogger": Fake})
    )
    monkeypatch.setattr(Fake, "made", made, raising=False)
    for name in ("wandb", "mlflow"):
        StudyLogger(name, folder).on_progress(Progress(RUN.name, "training"))
    (_, wandb), (given, mlflow) = made
    assert wandb["offline"]
    assert given == ("study", "rope-s0")
    assert mlflow["tracking_uri"] == f"sqlite:///{folder.path.resolve()}/logs/mlflow/mlflow.db"
    assert [os.environ[name] for name in ("WANDB_ERROR_REPORTING", "MLFLOW_DISABLE_TELEMETRY")] == ["false", "true"]


class Fake:
    """A logger whose package is not installed."""

    def __init__(self, *given, **named):
        self.made.append((given, named))

    def log_hyperparams(self, params):
        pass

    def log_metrics(self, metrics, step):
        pass

    def finalize(self, status):
        pass

    @property
    def experiment(self):
        return self

    experiment_id = "1"

    def search_runs(self, places, query):
        return []
