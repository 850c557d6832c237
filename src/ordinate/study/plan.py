"""A study's plan: the complete configuration of an experiment, from which every run is derived."""

from collections.abc import Mapping
from typing import Any

from ordinate.study.options import FORMER_VALUES, Options, unset_fields
from ordinate.study.run import FIRST_TUNING_SEED, Cell, Run, digest

DEFAULT_SCHEMES = ("none", "sinusoidal", "learned", "scalar", "concatenated", "rope", "alibi", "t5")
# for images: the two-dimensional form of each
DEFAULT_IMAGE_SCHEMES = ("none", "grid", "learned_grid", "fourier", "axial", "mixed", "alibi", "swin")
# fields that may differ when a study is resumed, since they change no result
RESUMABLE_FIELDS = frozenset({"checkpoint_every", "keep_checkpoints", "gradient_checkpointing"})
# fields that determine which runs there are, but not the result of any of them
RUN_LIST_FIELDS = frozenset({"schemes", "mixers", "seeds", "leader_seeds", "leaders", "budgets", "cells"})


class Plan(Options):
    """Everything that determines the results of a study."""

    budgets: dict[str, int] | None = None
    """Optimiser steps of each arm with matched FLOPs, by label; set when the plan is resolved."""
    leaders: tuple[str, ...] = ()
    """Labels of the leading arms, which get further seeds; set when the first seeds have been evaluated."""
    cells: tuple[Cell, ...] = ()
    """The cells of a grid; every scheme and mixer is trained in each of them."""

    @classmethod
    def stored(cls, fields: Mapping[str, Any]) -> "Plan":
        """The plan with these fields of a study.json; what a plan of an earlier version lacks is as it was then."""
        return cls.model_validate({**FORMER_VALUES, **fields})

    @property
    def specifications(self) -> tuple[str, ...]:
        """The texts that name schemes, mixers and the task."""
        return (*(self.schemes or ()), *(self.mixers or ()), self.task)

    def left_open_as(self, old: "Plan") -> "Plan":
        """The plan; if it leaves the factor of token embeddings open, with that of a study it resumes."""
        return self if self.embedding_scale else self.model_copy(update={"embedding_scale": old.embedding_scale})

    @property
    def longest_length(self) -> int:
        """Longest evaluation length [tokens]."""
        return self.length * max(self.eval_length_multiples)

    @property
    def default_schemes(self) -> tuple[str, ...]:
        """Schemes to compare where neither schemes nor mixers are given."""
        return DEFAULT_IMAGE_SCHEMES if self.model == "vision" else DEFAULT_SCHEMES

    def runs(self) -> list[Run]:
        """Every run: tuning runs, then seeds in the outer loop, so that one seed of every arm finishes first.

        The further seeds of the leading arms are among them once these are known.
        """
        return [run for stage in self.stages() for run in stage]

    def stages(self) -> list[list[Run]]:
        """The runs in groups, each of which needs the results of those before it.

        These are tuning runs, final runs, and further seeds of the leading arms.
        """
        trials = [run for plan, cell in self.cell_plans() for run in plan.tuning_runs(cell)]
        most = max(plan.seeds for plan, _ in self.cell_plans())
        final = [
            run for seed in range(most) for plan, cell in self.cell_plans() if seed < plan.seeds
            for run in plan.runs_for_seed(cell, seed)
        ]  # fmt: skip
        more = range(self.seeds, self.seeds + (self.leader_seeds or 0))
        further = [run for seed in more for run in self.runs_for_seed({}, seed) if run.label in self.leaders]
        return [stage for stage in (trials, final, further) if stage]

    def seeds_of(self, label: str) -> int:
        """Number of seeds of one arm."""
        return self.seeds + (self.leader_seeds or 0) * (label in self.leaders)

    def cell_plans(self) -> list[tuple["Plan", dict[str, Any]]]:
        """The plan and factor values of each cell; for a study without a grid, the plan itself and no values."""
        if not self.cells:
            return [(self, {})]
        return [(self._in(cell), cell.values) for cell in self.cells]

    def for_cell(self, values: dict[str, Any]) -> "Plan":
        """The plan of the cell with these factor values; the plan itself if there are none."""
        if not values:
            return self
        return self._in(next(cell for cell in self.cells if cell.values == values))

    def for_run(self, run: Run) -> "Plan":
        """The plan of one run: that of its cell, with the run's own number of steps and learning rate.

        Tuning runs take a fraction of the steps. The warm-up is scaled with the number of steps.
        """
        plan = self.for_cell(run.cell)
        steps, warmup, rate = (plan.budgets or {}).get(run.label, plan.steps), plan.warmup_steps, plan.learning_rate
        if run.rate is not None:
            steps, rate = max(1, round(plan.tune_fraction * steps)), run.rate
        if steps != plan.steps:
            warmup = round(plan.warmup_steps * steps / plan.steps)
        return plan.model_copy(update={"steps": steps, "warmup_steps": warmup, "learning_rate": rate})

    def runs_for_seed(self, cell: dict[str, Any], seed: int) -> list[Run]:
        """The final runs of one seed in one cell."""
        return [self._run(cell, seed, *one) for one in self.arms()]

    def tuning_runs(self, cell: dict[str, Any]) -> list[Run]:
        """The learning-rate tuning runs of one cell."""
        seeds, rates = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tune_seeds), self.tune_lr or ()
        # arms() may have to import mixers; without learning rates to try that would be wasted
        lines = self.arms() if rates else ()
        return [self._run(cell, seed, *one, rate=rate) for seed in seeds for one in lines for rate in rates]

    def _in(self, cell: Cell) -> "Plan":
        return Plan.model_validate({**dict(self), "cells": (), **cell.changes})

    def _run(
        self, cell: dict[str, Any], seed: int, label: str, scheme: str, mixer: str, rate: float | None = None
    ) -> Run:
        run = Run(label=label, scheme=scheme, mixer=mixer, seed=seed, rate=rate, cell=cell)
        if not cell:
            return run
        plan = self.model_copy(update={"cells": ()}).for_run(run.model_copy(update={"cell": {}}))
        fields = plan.model_dump(
            mode="json", exclude={*RESUMABLE_FIELDS, *RUN_LIST_FIELDS, "threads", *unset_fields(dict(plan))}
        )
        return run.model_copy(update={"key": digest([fields, scheme, mixer])})

    def arms(self) -> list[tuple[str, str, str]]:
        """The arms of the comparison: label (the name in the report), scheme and mixer of each."""
        if self.mixers is None:
            return [(scheme, scheme, "softmax") for scheme in self.schemes or self.default_schemes]
        if self.schemes is None:
            return [(mixer, default_scheme(mixer, self.model), mixer) for mixer in self.mixers]
        return [(f"{mixer} {scheme}", scheme, mixer) for mixer in self.mixers for scheme in self.schemes]

    def digest(self) -> str:
        """First 8 hex digits of the plan's hash, over all fields that can change a result."""
        silent = {*RESUMABLE_FIELDS, *unset_fields(dict(self)), "leaders"}
        return digest(self.model_dump(mode="json", exclude=silent))


def default_scheme(mixer: str, model: str) -> str:
    """The scheme that a mixer (that of the first layer) is paired with where no scheme is given."""
    from ordinate.mixers._spec import MixerSpec

    usual = MixerSpec(mixer).class_of(0).default_scheme
    # rope rotates by one coordinate only; images have two
    return "axial" if (model, usual) == ("vision", "rope") else usual


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List the keys whose values differ, as "key: old -> new"."""
    keys = [*old, *(key for key in new if key not in old)]
    return [f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in keys if old.get(key) != new.get(key)]
