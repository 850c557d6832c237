"""One run of a study, in a process of its own: train, measure, write the result.

Started as `python -m ordinate.study.worker FOLDER RUN`; says how far it is on standard output, a JSON line each time.
On several devices `ordinate.study.ranks` starts one for each, with `HARDWARE` as a third word; only the first of them
measures and writes.
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

from ordinate.files import write_json, write_sealed
from ordinate.models.kinds import Model
from ordinate.study.beginning import begin
from ordinate.study.folder import FORMAT, Folder
from ordinate.study.measure import device_name, peak_memory
from ordinate.study.model import parameters, shape_of
from ordinate.study.plan import Plan
from ordinate.study.ranks import end_with_parent
from ordinate.study.run import Run
from ordinate.study.source import Source, source_of
from ordinate.study.state import FINAL
from ordinate.study.tuning import measure_trial, tuned
from ordinate.task import Task
from ordinate.training.checkpoint import checkpoints, step_of
from ordinate.training.loop import ONE_DEVICE, train
from ordinate.training.metrics import Metrics
from ordinate.training.settings import Diverged, Hardware, Settings, Stopped, Trace
from ordinate.training.team import leave


def main() -> int:
    """Carry out the run named on the command line; 128 + the signal's number if a signal stopped it."""
    folder, name, hardware = Folder(Path(sys.argv[1])), sys.argv[2], Hardware()
    if len(sys.argv) > 3:
        hardware = Hardware(**json.loads(sys.argv[3]))
        end_with_parent()
    whole = folder.plan()
    (run,) = [run for run in whole.runs() if run.name == name]
    torch.set_num_threads(folder.threads() or 1)
    folder.run(run).mkdir(parents=True, exist_ok=True)
    # a process whose study was killed may still be at the same run, and ends within a step
    with FileLock(folder.run(run) / ".lock") if leads() else nullcontext():
        if leads() and folder.status(run) in FINAL:
            return 0
        try:
            carry_out(folder, whole, run, hardware)
        except Stopped as error:
            return 128 + error.signal
        except OSError as error:
            # a full disk, say: the message says all there is to say
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            folder.end(run, "oom", str(error).splitlines()[0] if str(error) else "not enough memory")
            # the others would wait for this one
            return 1 if hardware.world > 1 else 0
    return 0


def leads() -> bool:
    """Whether this process measures and writes: the only one of its run, or the first."""
    return os.environ.get("RANK", "0") == "0" or len(sys.argv) == 3


def out_of_memory(error: BaseException) -> bool:
    """Whether this is what Python, PyTorch on a processor or PyTorch on a GPU says when memory is short."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search("can't allocate memory|not enough memory", str(error)))


def carry_out(folder: Folder, whole: Plan, run: Run, hardware: Hardware = ONE_DEVICE) -> None:
    """Train and measure one run, going on from its newest checkpoint, and write its result."""
    began = time.perf_counter()
    plan, choice = whole.of(run), None if run.rate else tuned(folder, whole, run)
    if choice:
        plan = plan.model_copy(update={"learning_rate": choice.rate})
    source = source_of(plan)(plan, folder.prepared(plan, run.cell))
    shape = source.complete(shape_of(plan, run, source.task.vocabulary))
    torch.manual_seed(run.seed)
    model = begin(plan, run, shape)
    result: dict[str, Any] = {
        "format": FORMAT,
        "run": run.about,
        "status": "done",
        "step": plan.steps,
        "message": "",
        "parameters": parameters(plan, run, shape, model),
        **({"tuning": choice.about} if choice else {}),
    }
    place = folder.run(run)
    if leads():
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / "run.json", result["run"])
    trace = None
    try:
        trace = _train(model, source.task, plan, run, place, hardware) if plan.steps else Trace((), (), None)
    except Diverged as error:
        result |= {"status": "diverged", "step": error.step, "message": str(error)}
    else:
        if not leads():
            return
        say(stage="measuring")
        result["training"] = {"steps": list(trace.steps), "loss": list(trace.losses)}
        result |= _measured(model, source, run, place)
    result["cost"] = _cost(time.perf_counter() - began, trace, hardware)
    if leads():
        write_sealed(folder.result(run), result)


def _cost(seconds: float, trace: Trace | None, hardware: Hardware) -> dict[str, Any]:
    """What a run took, and of which machine."""
    several = {"hardware": asdict(hardware)} if hardware.world > 1 else {}
    return {
        "tokens_per_second": trace and trace.tokens_per_second,
        "peak_memory_bytes": peak_memory(),
        "seconds": seconds,
        "machine": device_name(),
        **several,
    }


def _measured(model: Model, source: Source, run: Run, place: Path) -> dict[str, Any]:
    """Everything of a run; of a trial the one number that it is for."""
    if run.rate is not None:
        return {"aside": measure_trial(model, source)}
    model.save_pretrained(place / "model")
    source.save(place / "model")
    return source.measure(model)


def say(**news: Any) -> None:
    """Tell the parent process how far this is."""
    print(json.dumps(news), flush=True)  # noqa: T201


def _forget_beyond_losses(place: Path) -> None:
    """Delete checkpoints whose losses are not as they were written, so that the run takes those steps again."""
    known = len(Metrics(place / "metrics.jsonl").read())
    for checkpoint in checkpoints(place):
        if step_of(checkpoint) > known:
            lost = f"the loss of step {known + 1} is not as it was written"
            print(f"{lost}; {checkpoint} is deleted, and its steps are taken again", file=sys.stderr)  # noqa: T201
            shutil.rmtree(checkpoint)


def _train(model: Model, task: Task, plan: Plan, run: Run, place: Path, hardware: Hardware) -> Trace:
    settings = Settings(
        steps=plan.steps,
        batch=plan.batch,
        seed=run.seed,
        learning_rate=plan.learning_rate,
        warmup=plan.warmup,
        weight_decay=plan.weight_decay,
        clip=plan.clip,
        precision=plan.precision,
        checkpoint_every=plan.checkpoint_every,
    )
    watch = lambda step, loss: say(step=step, loss=loss)  # noqa: E731
    if leads():
        _forget_beyond_losses(place / "checkpoints")
    return train(model, task, settings, place / "checkpoints", watch, hardware)


if __name__ == "__main__":
    leave(main())
