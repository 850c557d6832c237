"""How fast a run trains, tried for a moment in a process of its own.

Started as `python -m ordinate.study.trial FOLDER RUN`; says `ready`, then reads a line with a number of threads and
says how many steps a second it makes with so many, until there is nothing to read.
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn

from ordinate.models.kinds import Model
from ordinate.study.beginning import begin
from ordinate.study.folder import Folder
from ordinate.study.model import shape_of
from ordinate.study.plan import Plan
from ordinate.study.source import source_of
from ordinate.task import Task
from ordinate.training.answers import answer
from ordinate.training.optimiser import make_optimiser

# how long each trial trains [seconds]
SECONDS = 1.0


class Trial:
    """A model in training whose outcome nobody wants.

    Args:
        model: what is trained.
        task: what it learns.
        plan: of the study.
    """

    def __init__(self, model: Model, task: Task, plan: Plan) -> None:
        self.device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
        self.model, self.task, self.plan = model.train().to(self.device), task, plan
        self.optimiser = make_optimiser(model, plan.learning_rate, plan.weight_decay)
        self.generator = torch.Generator().manual_seed(0)

    def step(self) -> None:
        """One step, as training does it."""
        batch = self.task.sample(self.generator, self.plan.batch).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.plan.precision == "bf16"):
            logits = answer(self.model, batch)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten())
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)
        self.optimiser.step()
        loss.item()

    def speed(self, threads: int) -> float:
        """Steps a second with so many threads; the first step is not counted."""
        torch.set_num_threads(threads)
        self.step()
        steps, began = 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            self.step()
            steps += 1
        return steps / (time.perf_counter() - began)


def main() -> None:
    """Try what is read on standard input."""
    folder, name = Folder(Path(sys.argv[1])), sys.argv[2]
    whole = folder.plan()
    (run,) = [run for run in whole.runs() if run.name == name]
    plan = whole.of(run)
    source = source_of(plan)(plan, folder.prepared(plan, run.cell))
    model = begin(plan, run, source.complete(shape_of(plan, run, source.task.vocabulary)))
    trial = Trial(model, source.task, plan)
    trial.speed(1)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        print(trial.speed(int(line)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
