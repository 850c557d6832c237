"""What a study trains and measures: a value that says everything, from which each run follows."""

from typing import Any

from ordinate import catalog
from ordinate.study.options import Options
from ordinate.study.run import TUNING, Cell, Run, digest

EIGHT = ("none", "sinusoidal", "learned", "scalar", "concatenated", "rope", "alibi", "t5")
# for images: of each, the form that knows rows and columns
EIGHT_FOR_IMAGES = ("none", "grid", "learned_grid", "fourier", "axial", "mixed", "alibi", "swin")
# the only fields that may differ when a study is taken up again: they change no result
FREE = frozenset({"checkpoint_every"})
# fields that say which runs there are, and not what becomes of each
LISTED = frozenset({"schemes", "mixers", "seeds", "budgets", "cells"})


class Plan(Options):
    """Everything that decides the results of a study."""

    budgets: dict[str, int] | None = None
    """The steps of each scheme or mixer where compute is equal; counted when the plan is settled."""
    cells: tuple[Cell, ...] = ()
    """The cells of a grid; in each, everything is compared that is compared at all."""

    @property
    def longest(self) -> int:
        """The longest length that is read at (tokens)."""
        return self.length * max(self.multiples)

    @property
    def usual_schemes(self) -> tuple[str, ...]:
        """What is compared where nothing is named."""
        return EIGHT_FOR_IMAGES if self.model == "vision" else EIGHT

    def runs(self) -> list[Run]:
        """Every run: trials first, then seeds outside, so that one seed of every scheme is done first."""
        return [run for stage in self.stages() for run in stage]

    def stages(self) -> list[list[Run]]:
        """The runs of the study, in groups of which each needs the results of those before it."""
        trials = [run for plan, cell in self.parts() for run in plan.own_trials(cell)]
        most = max(plan.seeds for plan, _ in self.parts())
        final = [
            run for seed in range(most) for plan, cell in self.parts() if seed < plan.seeds
            for run in plan.own_runs(cell, seed)
        ]  # fmt: skip
        return [stage for stage in (trials, final) if stage]

    def parts(self) -> list[tuple["Plan", dict[str, Any]]]:
        """The plan of each cell, and the values of its factors; of a study without a grid, itself."""
        if not self.cells:
            return [(self, {})]
        return [(self._in(cell), cell.values) for cell in self.cells]

    def at(self, values: dict[str, Any]) -> "Plan":
        """The plan of the cell with these values; itself where there are none."""
        if not values:
            return self
        return self._in(next(cell for cell in self.cells if cell.values == values))

    def of(self, run: Run) -> "Plan":
        """The plan as it is for one run: that of its cell, with its own steps; of a trial, with what it tries."""
        plan = self.at(run.cell)
        steps, warmup, rate = (plan.budgets or {}).get(run.label, plan.steps), plan.warmup, plan.learning_rate
        if run.rate is not None:
            steps, rate = max(1, round(plan.trial_share * steps)), run.rate
        if steps != plan.steps:
            warmup = round(plan.warmup * steps / plan.steps)
        return plan.model_copy(update={"steps": steps, "warmup": warmup, "learning_rate": rate})

    def own_runs(self, cell: dict[str, Any], seed: int) -> list[Run]:
        """The runs of one seed, all in one cell."""
        return [self._run(cell, seed, *one) for one in self.compared()]

    def own_trials(self, cell: dict[str, Any]) -> list[Run]:
        """The trials of learning rates, all in one cell."""
        seeds, rates = range(TUNING, TUNING + self.trials), self.tune or ()
        # where nothing is tried, nothing need be loaded to know what would be
        lines = self.compared() if rates else ()
        return [self._run(cell, seed, *one, rate=rate) for seed in seeds for one in lines for rate in rates]

    def _in(self, cell: Cell) -> "Plan":
        return Plan.model_validate({**dict(self), "cells": (), **cell.changes})

    def _run(
        self, cell: dict[str, Any], seed: int, label: str, scheme: str, mixer: str, rate: float | None = None
    ) -> Run:
        run = Run(label=label, scheme=scheme, mixer=mixer, seed=seed, rate=rate, cell=cell)
        if not cell:
            return run
        whole = self.model_copy(update={"cells": ()}).of(run.model_copy(update={"cell": {}}))
        said = whole.model_dump(mode="json", exclude={*FREE, *LISTED, "threads"})
        return run.model_copy(update={"key": digest([said, scheme, mixer])})

    def compared(self) -> list[tuple[str, str, str]]:
        """What is compared: the name in the report, the scheme and the mixer of each."""
        if self.mixers is None:
            return [(scheme, scheme, "softmax") for scheme in self.schemes or self.usual_schemes]
        if self.schemes is None:
            return [(mixer, usual_scheme(mixer, self.model), mixer) for mixer in self.mixers]
        return [(f"{mixer} {scheme}", scheme, mixer) for mixer in self.mixers for scheme in self.schemes]

    def digest(self) -> str:
        """Eight letters that change when the plan does."""
        return digest(self.model_dump(mode="json", exclude=set(FREE)))


def usual_scheme(mixer: str, model: str) -> str:
    """The scheme that a mixer is compared with where none is named; that of the first layer's."""
    from ordinate.mixer import Mixer
    from ordinate.recipe import Recipe

    usual = catalog.load("ordinate.mixers", Mixer, catalog.parse(Recipe.entries(mixer)[0])[0]).usual_scheme
    # rope counts along one axis
    return "axial" if (model, usual) == ("vision", "rope") else usual


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """One line for each key whose value differs: "key: old -> new"."""
    keys = [*old, *(key for key in new if key not in old)]
    return [f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in keys if old.get(key) != new.get(key)]
