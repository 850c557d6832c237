"""The learning rate of each scheme, tuned under an equal budget: how trials are measured, and which rate is taken."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from torch import nn

from ordinate.checks import need
from ordinate.files import read_sealed
from ordinate.seeds import seed_of
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.study.run import Run
from ordinate.study.source import Source
from ordinate.study.state import FINAL
from ordinate.training.answers import asked, told

# sequences that a trial is measured on
SEQUENCES = 256


@dataclass(frozen=True)
class Tried:
    """A learning rate and how its trials ended.

    Args:
        rate: the highest learning rate.
        loss: the mean loss of its trials on what was set aside [nats]; None: a trial diverged.
    """

    rate: float
    loss: float | None


@dataclass(frozen=True)
class Tuned:
    """The learning rate that a scheme takes.

    Args:
        rate: the one of the lowest loss.
        edge: whether it is the lowest or the highest of the list, so that a better one may lie beyond; else None.
        tried: every one of the list.
    """

    rate: float
    edge: str | None
    tried: tuple[Tried, ...]

    @property
    def about(self) -> dict[str, Any]:
        """What the result of a run says of it."""
        return asdict(self)


def rates(plan: Plan) -> tuple[float, ...] | None:
    """The learning rates to try, in order: those of a list, or so many around the plan's own, each twice the last.

    Raises:
        ValueError: one that comes twice or is not above zero, or a number of them that is not whole.
    """
    if plan.tune is None:
        return None
    (first, *rest) = plan.tune
    if not rest and first >= 1:
        need(first == int(first) and first > 1, "--tune says how many to try", f"got {first}", "give 3, or rates")
        return tuple(plan.learning_rate * 2 ** (place - (first - 1) / 2) for place in range(int(first)))
    found = tuple(sorted(set(plan.tune)))
    need(
        len(found) == len(plan.tune) and len(found) > 1 and found[0] > 0,
        "learning rates to choose from are two different ones or more, above zero",
        f"got --tune {' '.join(map(str, plan.tune))}",
        "give such as 0.001 0.002 0.004, or how many",
    )
    return found


def measure_trial(model: nn.Module, source: Source) -> float:
    """The loss of a trial on what was set aside: the same sequences for all, and none that is reported on [nats]."""
    batch = source.aside.sample(torch.Generator().manual_seed(seed_of("aside")), SEQUENCES)
    nats, _ = told(model, batch, source.plan.precision)
    return float(nats.double().sum() / asked(batch).sum())


def tuned(folder: Folder, plan: Plan, run: Run) -> Tuned | None:
    """The learning rate of this run, by the trials of its scheme in its cell; None where none were tried.

    Raises:
        ValueError: trials without a result, or all diverged.
    """
    own = plan.at(run.cell)
    trials = [one for one in own.own_trials(run.cell) if one.label == run.label]
    if not trials:
        return None
    open_ = [one.name for one in trials if folder.status(one) not in FINAL]
    need(not open_, "a rate is chosen when all are tried", f"without a result: {', '.join(open_)}", "run it again")
    losses = {rate: [_loss(folder, one) for one in trials if one.rate == rate] for rate in own.tune or ()}
    tried = tuple(Tried(rate, _mean(found)) for rate, found in losses.items())
    return choose(tried, run.label)


def choose(tried: Sequence[Tried], label: str) -> Tuned:
    """The one of the lowest loss, of two alike the lower.

    Raises:
        ValueError: all diverged.
    """
    whole = [(one.loss, one.rate) for one in tried if one.loss is not None]
    need(bool(whole), "some learning rate must train", f"{label} diverged with each", "give lower ones")
    best = min(whole)[1]
    ends = {tried[0].rate: "lowest", tried[-1].rate: "highest"}
    return Tuned(best, ends.get(best), tuple(tried))


def _loss(folder: Folder, trial: Run) -> float | None:
    found = read_sealed(folder.result(trial))
    return found["aside"] if found["status"] == "done" else None


def _mean(losses: Sequence[float | None]) -> float | None:
    whole = [loss for loss in losses if loss is not None]
    return fmean(whole) if len(whole) == len(losses) else None
