"""Fixtures for studies whose runs are carried out in this process, one after another."""

from functools import partial

import pytest

from ordinate.core.progress import ignore
from ordinate.study import worker
from ordinate.study.executor import Executor
from ordinate.study.grid import PlanRequest, expand, join_cells
from ordinate.study.presets import preset
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.thread_autotuning import ThreadChoice
from ordinate.training.settings import Hardware

SMALL = {"layers": (1,), "heads": (2,), "steps": (3,), "batch": (2,), "task_samples": (8,), "precision": ("fp32",)}


class Here(Executor):
    """Executor that carries out runs in this process and records their names."""

    def __init__(self):
        self.carried = []

    def choose_threads(self, folder, plan, runs, on_progress):
        return ThreadChoice(1)

    def run_all(self, folder, plan, runs, on_progress):
        for run in runs:
            self.carried.append(run.name)
            worker.train_and_evaluate(folder, plan, run, Hardware())


@pytest.fixture(scope="session")
def designed():
    """A resolved plan of small models."""

    def make(exceptions=(), **options):
        cells = expand(PlanRequest(**SMALL | options), partial(preset, "quick"), exceptions)
        return join_cells([(values, resolve(plan)) for values, plan in cells])

    return make


@pytest.fixture(scope="session")
def carried():
    """Carry out the missing runs of a plan; returns the folder and the names of these runs."""

    def carry(plan, out, on_progress=ignore, **options):
        engine = Here()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "print_update", lambda **update: None)
            return run_study(plan, out, engine, "ordinate study", on_progress, **options), engine.carried

    return carry
