"""Learning-rate tuning: every scheme tries the same number of rates; the one with the lowest loss is used."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from torch import nn

from ordinate.core.checks import need
from ordinate.core.seeds import derive_seed
from ordinate.evaluation.prediction import has_target, token_losses
from ordinate.study.data_source import DataSource
from ordinate.study.plan import Plan
from ordinate.study.result_file import read_result
from ordinate.study.run import FINAL_STATES, Run
from ordinate.study.study_folder import StudyFolder

# sequences of the tuning split on which a tuning run is evaluated
TUNING_SEQUENCES = 256
# each is trained several times; a factor of two apart, this many span all that is ever chosen
MOST_RATES = 64


@dataclass(frozen=True)
class TriedRate:
    """A learning rate and the loss of its tuning runs.

    Args:
        rate: peak learning rate.
        loss: mean loss of its runs on the tuning split [nats]; None if one of them diverged.
    """

    rate: float
    loss: float | None


@dataclass(frozen=True)
class TunedRate:
    """The tuned learning rate of an arm.

    Args:
        rate: the rate with the lowest loss.
        edge: `lowest` or `highest` if it is the end of the list, so that a better one may lie beyond; else None.
        tried: all rates of the list.
    """

    rate: float
    edge: str | None
    tried: tuple[TriedRate, ...]

    @property
    def as_record(self) -> dict[str, Any]:
        """The choice as stored in the result of a run."""
        return asdict(self)


def learning_rates(plan: Plan) -> tuple[float, ...] | None:
    """Return the learning rates to try: a sorted list, or a number of them around the plan's, a factor of two apart.

    Raises:
        ValueError: a repeated rate, one that is not positive, or a number of rates that is not an integer
            from 2 to 64.
    """
    if plan.tune_lr is None:
        return None
    (first, *rest) = plan.tune_lr
    if not rest and first >= 1:
        need(
            1 < first <= MOST_RATES and first == int(first),
            f"a number of learning rates must be an integer from 2 to {MOST_RATES}",
            f"got --tune-lr {first:g}",
            "give 3, or rates",
        )
        return tuple(plan.learning_rate * 2 ** (place - (first - 1) / 2) for place in range(int(first)))
    found = tuple(sorted(set(plan.tune_lr)))
    need(
        len(found) == len(plan.tune_lr) and len(found) > 1 and found[0] > 0,
        "learning rates to choose from must be at least two, different and above zero",
        f"got --tune-lr {' '.join(map(str, plan.tune_lr))}",
        "give rates such as 0.001 0.002 0.004, or their number",
    )
    return found


def tuning_loss(model: nn.Module, source: DataSource) -> float:
    """Return the loss of a tuning run on the tuning split, on the same sequences for all runs [nats]."""
    batch = source.tuning_task.sample(torch.Generator().manual_seed(derive_seed("aside")), TUNING_SEQUENCES)
    nats, _ = token_losses(model, batch, source.plan.precision)
    return float(nats.double().sum() / has_target(batch).sum())


def tuned_rate(folder: StudyFolder, plan: Plan, run: Run) -> TunedRate | None:
    """Return the tuned learning rate of this run, from the tuning runs of its arm and cell; None without tuning.

    Raises:
        ValueError: tuning runs without a result, or all of them diverged.
    """
    cell_plan = plan.for_cell(run.cell)
    trials = [one for one in cell_plan.tuning_runs(run.cell) if one.label == run.label]
    if not trials:
        return None
    unfinished = [one.name for one in trials if folder.status(one) not in FINAL_STATES]
    need(
        not unfinished,
        "every tuning run must have a result",
        f"none for {', '.join(unfinished)}",
        "repeat the command to finish them",
    )
    losses = {rate: [_loss(folder, one) for one in trials if one.rate == rate] for rate in cell_plan.tune_lr or ()}
    tried = tuple(TriedRate(rate, _mean(found)) for rate, found in losses.items())
    return choose_rate(tried, run.label)


def choose_rate(tried: Sequence[TriedRate], label: str) -> TunedRate:
    """Return the rate with the lowest loss; of equal losses, the lower rate.

    Raises:
        ValueError: all rates diverged.
    """
    whole = [(one.loss, one.rate) for one in tried if one.loss is not None]
    need(bool(whole), "some learning rate must not diverge", f"{label} diverged with each", "give lower ones")
    # tuples compare by loss first, then by rate: of equal losses the lower rate
    best = min(whole)[1]
    ends = {tried[0].rate: "lowest", tried[-1].rate: "highest"}
    return TunedRate(best, ends.get(best), tuple(tried))


def _loss(folder: StudyFolder, trial: Run) -> float | None:
    found = read_result(folder.result(trial))
    return found["aside"] if found["status"] == "done" else None


def _mean(losses: Sequence[float | None]) -> float | None:
    whole = [loss for loss in losses if loss is not None]
    return fmean(whole) if len(whole) == len(losses) else None
