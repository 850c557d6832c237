"""Measures training speed in a separate process, for thread autotuning.

Started as `python -P -m ordinate.study.speed_trial FOLDER RUN`; prints `ready`, then reads numbers of threads, one
per line, and prints the steps per second with each, until standard input closes.
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn

from ordinate.data.task import Task
from ordinate.evaluation.prediction import batch_logits
from ordinate.models.registry import Model
from ordinate.study.data_source import source_of
from ordinate.study.initial_model import initial_model
from ordinate.study.model_sizing import shape_of
from ordinate.study.plan import Plan
from ordinate.study.study_folder import StudyFolder
from ordinate.training.optimiser import make_optimiser

# duration of each measurement [seconds]
MEASURE_SECONDS = 1.0


class SpeedTrial:
    """A training loop whose model is discarded.

    Args:
        model: the model.
        task: the training task.
        plan: the study's plan.
    """

    def __init__(self, model: Model, task: Task, plan: Plan) -> None:
        self.device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
        self.model, self.task, self.plan = model.train().to(self.device), task, plan
        self.optimiser = make_optimiser(model, plan.learning_rate, plan.weight_decay)
        self.generator = torch.Generator().manual_seed(0)

    def step(self) -> None:
        """One optimiser step, with the same operations as in training."""
        batch = self.task.sample(self.generator, self.plan.batch).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.plan.precision == "bf16"):
            logits = batch_logits(self.model, batch)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten())
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.grad_clip)
        self.optimiser.step()
        loss.item()

    def speed(self, threads: int) -> float:
        """Steps per second with this number of threads, after one warm-up step."""
        torch.set_num_threads(threads)
        self.step()
        steps, began = 0, time.perf_counter()
        while time.perf_counter() - began < MEASURE_SECONDS:
            self.step()
            steps += 1
        return steps / (time.perf_counter() - began)


def main() -> None:
    """Measure for each number of threads read from standard input."""
    folder, name = StudyFolder(Path(sys.argv[1])), sys.argv[2]
    whole = folder.trusted_plan()
    (run,) = [run for run in whole.runs() if run.name == name]
    plan = whole.for_run(run)
    source = source_of(plan)(plan, folder.data_of(plan, run.cell))
    model = initial_model(plan, run, source.complete_shape(shape_of(plan, run, source.task.vocabulary)))
    trial = SpeedTrial(model, source.task, plan)
    trial.speed(1)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(trial.speed(int(line)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
