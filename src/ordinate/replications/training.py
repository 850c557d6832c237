"""Train the models of a replication, one after the other, and keep what is measured on them."""

import shutil
import time
from pathlib import Path

import torch
from torch import nn

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.core.checks import need
from ordinate.core.progress import OnProgress, Progress, ignore, subrange
from ordinate.core.seeds import derive_seed
from ordinate.data.task import Task
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import SEEDS, TrainedRun, TrainedRuns
from ordinate.study.manifest import processor
from ordinate.training.checkpoint import checkpoint_path, read_checkpoint
from ordinate.training.loop import train

FORMAT = 2


def train_models(
    member: TrainedReplication, path: Path, on_progress: OnProgress = ignore, seeds: int = SEEDS
) -> TrainedRuns:
    """Train the models that are not in the file yet, and add what is measured on each as soon as it is trained.

    Interrupted, it goes on with the next call. Seeds are the outer loop: an unfinished file holds whole pairs but for
    the last.

    Args:
        member: the replication.
        path: file of the numbers; in a folder beside it models are trained, which are removed when measured.
        on_progress: receives models done, of all.
        seeds: number of seeds.

    Raises:
        ValueError: the file is damaged, or belongs to models of other hyperparameters.
        TrainingStopped: a signal arrived; the state of the model is saved.
    """
    runs = read_runs(path, member) if path.exists() else _none_yet(member)
    wanted = [(arm, seed) for seed in range(seeds) for arm in member.arms]
    there = {(run.arm, run.seed) for run in runs.runs}
    if all((arm.name, seed) in there for arm, seed in wanted):
        return runs
    folder, tasks = path.with_suffix(""), {arm.name: member.task(arm) for arm in member.arms}
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, (arm, seed) in enumerate(wanted):
        if (arm.name, seed) in there:
            continue
        on_progress(Progress(stage="training", done=place / len(wanted), total=1.0))
        part = subrange(on_progress, place / len(wanted), (place + 1) / len(wanted))
        run = _one(member, arm, seed, tasks[arm.name], folder, part)
        runs = runs.model_copy(update={"runs": (*runs.runs, run)})
        write_checksummed(path, {"format": FORMAT, "trained": runs.model_dump(mode="json")})
    shutil.rmtree(folder, ignore_errors=True)
    return runs


def read_runs(path: Path, member: TrainedReplication) -> TrainedRuns:
    """Read what was measured on the trained models of a replication.

    Raises:
        ValueError: the file is damaged, of another format, or belongs to models of other hyperparameters.
    """
    content = read_checksummed(path, "train the models again in another folder")
    must, came = f"numbers of trained models must have format {FORMAT}", f"{path} has {content.get('format')!r}"
    need(content.get("format") == FORMAT, must, came, "train the models again in another folder")
    runs, arms = TrainedRuns.model_validate(content["trained"]), {arm.name: arm for arm in member.arms}
    same = {name for name, plan in runs.plan.items() if name in arms and arms[name].has_plan(plan)}
    changed = [name for name in {**runs.plan, **arms} if name not in same]
    must = "numbers must come from models with the hyperparameters of this version"
    came = f"{path} has other ones in {', '.join(changed)}"
    need(not changed, must, came, "train the models again in another folder")
    return runs


def _none_yet(member: TrainedReplication) -> TrainedRuns:
    threads = torch.get_num_threads()
    about = f"{processor()}, {threads} thread{'s' * (threads > 1)}, PyTorch {torch.__version__}"
    return TrainedRuns(plan={arm.name: arm.plan for arm in member.arms}, processor=about)


def _one(
    member: TrainedReplication, arm: Arm, seed: int, task: Task, folder: Path, on_progress: OnProgress
) -> TrainedRun:
    began = time.perf_counter()
    model = _new(arm, seed, task, folder)
    folder = folder / f"{arm.name}-{seed}"
    before = {0: _numbers(member, model)} if member.before_training else {}
    train(model, task, arm.settings(seed, member.looks), folder, on_progress)
    seconds = time.perf_counter() - began
    numbers = _numbers(member, model)
    for step in range(arm.steps // member.looks, arm.steps, arm.steps // member.looks):
        before[step] = _at(member, model, checkpoint_path(folder, step))
    shutil.rmtree(folder, ignore_errors=True)
    return TrainedRun(arm=arm.name, seed=seed, numbers=numbers, before=before, seconds=round(seconds, 2))


def _new(arm: Arm, seed: int, task: Task, folder: Path) -> nn.Module:
    """The model before its training: with new weights, or those of the trained model with which it starts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights"))
        model = arm.build()
    if arm.start is not None:
        first = _new(arm.start, seed, task, folder)
        # trained once for all arms that start with it: its folder stays until all are trained
        train(first, task, arm.start.settings(seed), folder / f"start-{arm.start.name}-{seed}")
        model.load_state_dict(first.state_dict())
    return model


def _at(member: TrainedReplication, model: nn.Module, path: Path) -> dict[str, float]:
    """Numbers of the model as it was at a checkpoint."""
    state = read_checkpoint(path)["state_dict"]
    model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    return _numbers(member, model)


def _numbers(member: TrainedReplication, model: nn.Module) -> dict[str, float]:
    with torch.no_grad():
        return dict(member.examine(model.eval()))
