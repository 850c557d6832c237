"""Worker process of one run: train, evaluate, write the result.

Started as `python -P -m ordinate.study.worker FOLDER RUN`; prints progress on standard output, one JSON object
per line.
On several devices `ordinate.study.distributed_launcher` starts one for each, with `HARDWARE` as third argument; only
rank 0 evaluates and writes.
"""

import json
import os
import re
import shutil
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from ordinate.core.atomic_files import unfinished_files, write_checksummed, write_json
from ordinate.core.progress import Progress
from ordinate.data.task import Task
from ordinate.models.registry import Model
from ordinate.models.shape import Shape
from ordinate.study.data_source import DataSource, source_of
from ordinate.study.distributed_launcher import end_with_parent
from ordinate.study.initial_model import initial_model
from ordinate.study.manifest import run_provenance
from ordinate.study.model_sizing import parameter_counts, shape_of
from ordinate.study.plan import Plan
from ordinate.study.resources import device_name, peak_memory
from ordinate.study.result_file import FORMAT_VERSION
from ordinate.study.run import FINAL_STATES, Run
from ordinate.study.study_folder import StudyFolder
from ordinate.study.tuning import TunedRate, tuned_rate, tuning_loss
from ordinate.study.weights_digest import weights_digest
from ordinate.training.checkpoint import list_checkpoints, step_of
from ordinate.training.loop import ONE_DEVICE, train
from ordinate.training.metrics import Metrics
from ordinate.training.process_group import exit_now
from ordinate.training.settings import Hardware, TrainingDiverged, TrainingHistory, TrainingSettings, TrainingStopped


def main() -> int:
    """Carry out the run named on the command line; returns 128 + the signal's number if a signal stopped it."""
    folder, name, hardware = StudyFolder(Path(sys.argv[1])), sys.argv[2], Hardware()
    if len(sys.argv) > 3:
        hardware = Hardware(**json.loads(sys.argv[3]))
        end_with_parent()
    whole = folder.trusted_plan()
    (run,) = [run for run in whole.runs() if run.name == name]
    torch.set_num_threads(folder.threads() or 1)
    folder.run(run).mkdir(parents=True, exist_ok=True)
    # the worker of a study that was killed may still be at this run; it exits within a step
    with FileLock(folder.run(run) / ".lock") if is_rank_zero() else nullcontext():
        if is_rank_zero():
            for left in unfinished_files(folder.run(run)):
                left.unlink(missing_ok=True)
            if folder.status(run) in FINAL_STATES:
                return 0
        try:
            train_and_evaluate(folder, whole, run, hardware)
        except TrainingStopped as error:
            return 128 + error.signal
        except OSError as error:
            # a full disk, for example: the message is sufficient without a traceback
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            folder.record_end(run, "oom", str(error).splitlines()[0] if str(error) else "not enough memory")
            # other ranks would wait for this one, so the launcher must see a failure
            return 1 if hardware.world_size > 1 else 0
    return 0


def is_rank_zero() -> bool:
    """Whether this process evaluates and writes: rank 0, or the only process of its run."""
    return os.environ.get("RANK", "0") == "0" or len(sys.argv) == 3


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is an out-of-memory error of Python, PyTorch's CPU allocator, or a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search("can't allocate memory|not enough memory", str(error)))


def train_and_evaluate(folder: StudyFolder, whole: Plan, run: Run, hardware: Hardware = ONE_DEVICE) -> None:
    """Train and evaluate one run, resuming from its newest checkpoint, and write its result."""
    start = time.perf_counter()
    plan, tuning = plan_of_run(folder, whole, run)
    source = source_of(plan)(plan, folder.data_of(plan, run.cell))
    shape, model = start_of_run(plan, run, source)
    result: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "run": run.as_record,
        "status": "done",
        "step": plan.steps,
        "message": "",
        "provenance": run_provenance(plan),
        "parameters": parameter_counts(plan, run, shape, model),
        **_token_embeddings(shape),
        **({"tuning": tuning.as_record} if tuning else {}),
    }
    place = folder.run(run)
    if is_rank_zero():
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / "run.json", result["run"])
    trace = None
    try:
        trace = (
            _train(model, source.task, plan, run, place, hardware) if plan.steps else TrainingHistory((), (), None)
        )
    except TrainingDiverged as error:
        result |= {"status": "diverged", "step": error.step, "message": str(error)}
    else:
        if not is_rank_zero():
            return
        print_update(stage="measuring")
        result["training"] = {"steps": list(trace.steps), "loss": list(trace.losses)}
        result |= _measured(model, source, run, place)
    result["cost"] = _cost(time.perf_counter() - start, trace, hardware)
    if is_rank_zero():
        write_checksummed(folder.result(run), result)


def plan_of_run(folder: StudyFolder, whole: Plan, run: Run) -> tuple[Plan, TunedRate | None]:
    """Return the plan of one run with its tuned learning rate, and the tuning; None of a run that is not tuned."""
    plan, tuning = whole.for_run(run), None if run.rate else tuned_rate(folder, whole, run)
    return plan.model_copy(update={"learning_rate": tuning.rate}) if tuning else plan, tuning


def start_of_run(plan: Plan, run: Run, source: DataSource) -> tuple[Shape, Model]:
    """Return the shape of a run's model, and the model with the initial weights that the run's seed determines."""
    shape = source.complete_shape(shape_of(plan, run, source.task.vocabulary))
    torch.manual_seed(run.seed)
    return shape, initial_model(plan, run, shape)


def settings_of(plan: Plan, run: Run) -> TrainingSettings:
    """Return the training settings of a run, from the plan of this run."""
    return TrainingSettings(
        steps=plan.steps,
        batch=plan.batch,
        seed=run.seed,
        learning_rate=plan.learning_rate,
        warmup_steps=plan.warmup_steps,
        weight_decay=plan.weight_decay,
        grad_clip=plan.grad_clip,
        precision=plan.precision,
        checkpoint_every=plan.checkpoint_every,
        # a run that tries a learning rate is shorter, and its model is not used
        keep_steps=()
        if run.rate is not None
        else tuple(step for step in plan.keep_checkpoints if step <= plan.steps),
    )


def _token_embeddings(shape: Shape) -> dict[str, Any]:
    """Factor of the token embeddings and their initial standard deviation, where the model has a token table."""
    found = {"scale": shape.embedding_scale, "std": shape.embedding_std}
    return {"token_embeddings": found} if shape.has_token_table else {}


def _cost(seconds: float, trace: TrainingHistory | None, hardware: Hardware) -> dict[str, Any]:
    """Cost of a run: speed, memory, time, and the hardware used."""
    several = {"hardware": asdict(hardware)} if hardware.world_size > 1 else {}
    return {
        "tokens_per_second": trace and trace.tokens_per_second,
        "peak_memory_bytes": peak_memory(),
        "seconds": seconds,
        "machine": device_name(),
        **several,
    }


def _measured(model: Model, source: DataSource, run: Run, place: Path) -> dict[str, Any]:
    """Evaluate the model; a tuning run yields only its loss on the tuning split."""
    if run.rate is not None:
        return {"aside": tuning_loss(model, source)}
    model.save_pretrained(place / "model")
    source.save(place / "model")
    return {"weights_sha256": weights_digest(model), **source.measure(model)}


def print_update(**update: Any) -> None:
    """Print a progress event for the parent process."""
    print(json.dumps(update), flush=True)  # noqa: T201


def _forget_beyond_losses(place: Path) -> None:
    """Delete checkpoints newer than the last intact line of metrics.jsonl; those steps are repeated."""
    known = len(Metrics(place / "metrics.jsonl").read())
    for checkpoint in list_checkpoints(place):
        if step_of(checkpoint) > known:
            lost = f"the logged loss of step {known + 1} is missing or corrupted"
            print(f"{lost}; {checkpoint} is deleted, and training resumes before it", file=sys.stderr)  # noqa: T201
            shutil.rmtree(checkpoint)


def _train(model: Model, task: Task, plan: Plan, run: Run, place: Path, hardware: Hardware) -> TrainingHistory:
    if is_rank_zero():
        _forget_beyond_losses(place / "checkpoints")
    return train(model, task, settings_of(plan, run), place / "checkpoints", _print_progress, hardware)


def _print_progress(progress: Progress) -> None:
    print_update(step=progress.done, loss=progress.loss)


if __name__ == "__main__":
    exit_now(main())
