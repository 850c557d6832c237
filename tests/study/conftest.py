"""Studies whose runs are carried out in this process, one after another."""

from functools import partial

import pytest

from ordinate.study import worker
from ordinate.study.conduct import conduct
from ordinate.study.design import Wish, grid, planned
from ordinate.study.engine import Engine
from ordinate.study.pace import Pace
from ordinate.study.presets import preset
from ordinate.study.settle import settle
from ordinate.training.settings import Hardware

SMALL = {"layers": (1,), "heads": (2,), "steps": (3,), "batch": (2,), "fresh": (8,), "precision": ("fp32",)}


class Here(Engine):
    """Carries runs out in this process, and remembers which."""

    def __init__(self):
        self.carried = []

    def pace(self, folder, plan, runs):
        return Pace(1)

    def carry_out(self, folder, plan, runs, watch):
        for run in runs:
            self.carried.append(run.name)
            worker.carry_out(folder, plan, run, Hardware())


class Quiet:
    def reading(self, what):
        pass

    def planned(self, plan, todo):
        pass

    def news(self, news):
        pass


@pytest.fixture(scope="session")
def designed():
    """A settled plan of small models."""

    def make(exceptions=(), **options):
        cells = planned(Wish(**SMALL | options), partial(preset, "quick"), exceptions)
        return grid([(values, settle(plan)) for values, plan in cells])

    return make


@pytest.fixture(scope="session")
def carried():
    """Carry out what is missing of a plan: the folder, and the names of the runs that were."""

    def carry(plan, out):
        engine = Here()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "say", lambda **news: None)
            return conduct(plan, out, engine, "ordinate study", Quiet()), engine.carried

    return carry
