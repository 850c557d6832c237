"""The decision of a study: which scheme or mixer to use, how sure that is, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ordinate.evaluation.comparison import Comparison
from ordinate.evaluation.result import LengthResult
from ordinate.evaluation.statistics import Interval
from ordinate.report.metric import Metric
from ordinate.report.read import Study
from ordinate.report.summary import ArmSummary
from ordinate.report.wording import listed, quoted

# share of the training steps over which a loss is averaged before two curves are compared
SMOOTHED_SHARE = 0.05

Grade = Literal["significant", "provisional", "undecided", "unknown"]


@dataclass(frozen=True)
class Choice:
    """What to use at one evaluation length: those that no test has excluded.

    A test over seeds excludes a scheme if the best is significantly better than it, with two seeds at least. Where
    that test excludes too little to decide, the trained models themselves do: a scheme is excluded provisionally if
    the best is significantly better than it with every common seed (`Comparison.consistent`).

    Args:
        times: the length as a multiple of the trained one.
        length: the length [tokens or pixels].
        labels: those that no test has excluded, the best first.
        grade: `significant`: one is significantly better than every other, with two seeds at least; `provisional`: so
            it is with every seed by itself, but not over seeds; `undecided`: several are left; `unknown`: there are
            too few documents for a test.
        open: those that are excluded provisionally only, by the trained models.
        next: the best of those that are excluded; None if there is none.
        difference: how much worse that one is, in the unit of the metric; None if there is none.
        interval: its 95 % interval, not corrected for other comparisons.
        relative: the difference as a share of that one's value.
        p: the largest p-value after correction of those that are excluded: how sure it is that all of them are worse.
        documents: number of documents compared.
        seeds: smallest number of seeds compared.
        most_seeds: largest number of seeds compared.
        seeds_needed: estimated number of seeds that would decide between the best and those that no test over seeds
            has excluded; None if no number up to a hundred would, if there is one seed, or if nothing is left.
    """

    times: int
    length: int
    labels: tuple[str, ...]
    grade: Grade
    open: tuple[str, ...]
    next: str | None
    difference: float | None
    interval: Interval | None
    relative: float | None
    p: float | None
    documents: int
    seeds: int
    most_seeds: int
    seeds_needed: int | None


@dataclass(frozen=True)
class Cost:
    """What a scheme or mixer costs in training, on the machine of the study.

    Args:
        label: its label.
        speed: tokens (or images) per second; None if it was not measured.
        relative_speed: as a share of the fastest in the study.
        memory: peak memory of the process [bytes]; None if it was not measured.
    """

    label: str
    speed: float | None
    relative_speed: float | None
    memory: float | None


@dataclass(frozen=True)
class Decision:
    """The decision of a study.

    Args:
        answer: what to use, in a sentence.
        choices: at the trained length, and at the longest evaluated one if there is another.
        costs: of everything named in the choices.
        training_share: share of the training after which the best at the trained length had reached the final
            training loss of the next; None if it had not, or if there is no next. Since the learning rate falls until
            the end, it is an upper bound: a run planned for fewer steps would have got there sooner.
    """

    answer: str
    choices: tuple[Choice, ...]
    costs: tuple[Cost, ...]
    training_share: float | None


def decide(study: Study, entries: Sequence[ArmSummary]) -> Decision:
    """Return the decision, from summaries with the best at the trained length first."""
    if not entries:
        return Decision("No run has finished, so nothing can be said yet.", (), (), None)
    near = _choice(entries, "behind", entries[0].trained)
    choices = [near]
    able = entries_at_longest(entries)
    if any(len(entry.levels) > 1 for entry in entries):
        furthest = best_at_longest(entries, study.metric)
        ranked = sorted(able, key=lambda entry: (entry is not furthest, study.metric.sign * entry.longest.value))
        choices.append(_choice(ranked, "behind_longest", furthest.longest))
    named = dict.fromkeys(label for choice in choices for label in choice.labels)
    return Decision(
        _answer(entries, choices, study.metric),
        tuple(choices),
        tuple(_costs(study, list(named))),
        _training_share(study, near),
    )


def leader(entries: Sequence[ArmSummary], level: str = "behind") -> ArmSummary | None:
    """Return the entry that is significantly better than every other, after correction; None if there is none.

    With one seed that is said of these trained models, not of the recipes that trained them.
    """
    first = [entry for entry in entries if getattr(entry, level) is None]
    others = [getattr(entry, level) for entry in entries if getattr(entry, level) is not None]
    return first[0] if len(first) == 1 and others and all(found.significantly_above for found in others) else None


def winner(entries: Sequence[ArmSummary], level: str = "behind") -> ArmSummary | None:
    """Return the leader if at least two seeds of each pair show it; None otherwise."""
    compared = [getattr(entry, level) for entry in entries if getattr(entry, level) is not None]
    return leader(entries, level) if all(found.seeds > 1 for found in compared) else None


def entries_at_longest(entries: Sequence[ArmSummary]) -> list[ArmSummary]:
    """Return the entries with a value at the longest evaluated length."""
    times = max(entry.longest.times for entry in entries)
    return [entry for entry in entries if entry.longest.times == times]


def best_at_longest(entries: Sequence[ArmSummary], kind: Metric) -> ArmSummary:
    """Return the entry with the best value at the longest evaluated length."""
    return min(entries_at_longest(entries), key=lambda entry: kind.sign * entry.longest.value)


def _choice(ranked: Sequence[ArmSummary], level: str, best: LengthResult) -> Choice:
    """Return the choice among entries of which the first has the best value."""
    compared: list[tuple[ArmSummary, Comparison | None]] = [(entry, getattr(entry, level)) for entry in ranked[1:]]
    left = [entry for entry, found in compared if not (found and found.consistently_above)]
    open_ = [entry for entry, found in compared if entry not in left and not _sure(found)]
    excluded = [(entry, found) for entry, found in compared if found and entry not in left]
    other, nearest = min(excluded, key=lambda pair: pair[1].difference, default=(None, None))
    value = None if other is None else other.levels[best.times].value
    tests = [found for _, found in compared if found]
    seeds = [found.seeds for found in tests] or [ranked[0].seeds]
    return Choice(
        times=best.times,
        length=best.length,
        labels=(ranked[0].label, *(entry.label for entry in left)),
        grade=_grade(tests, left, open_),
        open=tuple(entry.label for entry in open_),
        next=other.label if other else None,
        difference=nearest.difference if nearest else None,
        interval=nearest.interval if nearest else None,
        relative=nearest.difference / value if nearest and value else None,
        p=max((found.adjusted for _, found in excluded), default=None),
        documents=max((found.documents for found in tests), default=0),
        seeds=min(seeds),
        most_seeds=max(seeds),
        seeds_needed=_seeds_needed([getattr(entry, level) for entry in (*left, *open_)]),
    )


def _sure(found: Comparison | None) -> bool:
    """Whether a test over seeds excludes the other."""
    return found is not None and found.significantly_above and found.seeds > 1


def _grade(tests: Sequence[Comparison], left: Sequence[ArmSummary], open_: Sequence[ArmSummary]) -> Grade:
    if not tests or any(found.interval is None for found in tests):
        return "unknown"
    if left:
        return "undecided"
    return "provisional" if open_ else "significant"


def _seeds_needed(open_: Sequence[Comparison | None]) -> int | None:
    needed = [_seeds_for(found) if found else None for found in open_]
    return max((count for count in needed if count), default=None) if needed and all(needed) else None


def _seeds_for(found: Comparison) -> int | None:
    """Seeds needed for one comparison; where the other is better on the common ones, first one more of the other."""
    return found.seeds_needed if found.difference > 0 else found.seeds + 1


def _answer(entries: Sequence[ArmSummary], choices: Sequence[Choice], kind: Metric) -> str:
    if len(entries) == 1:
        return f"Only {quoted(entries[0].label)} was trained, so there is nothing to choose from."
    near, far = choices[0], choices[-1]
    alike = _provision(near) == _provision(far)
    use = f"Provisionally ({_provision(near)}), use" if alike and _provision(near) else "Use"
    if len(choices) == 1:
        return f"{use} {_one_of(near)} on {kind.this} {kind.source} at this size."
    if alike and set(near.labels) == set(far.labels):
        return (
            f"{use} {_one_of(near)}, whether {kind.inputs} stay within the trained {kind.extent} or the model must "
            f"{kind.extrapolation_phrase}."
        )
    first, last = (
        _one_of(one) + (f" (provisionally: {_provision(one)})" if _provision(one) and not alike else "")
        for one in (near, far)
    )
    return (
        f"{use} {first} if {kind.inputs} stay within the trained {kind.extent}, "
        f"{last} if the model must {kind.extrapolation_phrase}."
    )


def _provision(choice: Choice) -> str:
    """What a choice is based on where no test over seeds decides: so many seeds; empty if nothing is provisional."""
    if choice.seeds > 1 and not choice.open:
        return ""
    return "one seed" if choice.most_seeds == 1 else f"{seed_range(choice)} seeds"


def seed_range(choice: Choice) -> str:
    """The numbers of seeds compared: 3, or 1 to 2."""
    return " to ".join(map(str, dict.fromkeys((choice.seeds, choice.most_seeds))))


def _one_of(choice: Choice) -> str:
    """Name one, or those among which the data do not decide."""
    names = [quoted(label) for label in choice.labels]
    return names[0] if len(names) == 1 else f"one of {listed(names, 'or')}"


def _costs(study: Study, labels: Sequence[str]) -> list[Cost]:
    speeds = {label: _mean(study, label, "tokens_per_second") for label in study.arms}
    fastest = max((speed for speed in speeds.values() if speed), default=None)
    return [
        Cost(
            label,
            speeds[label],
            speed / fastest if (speed := speeds[label]) and fastest else None,
            _mean(study, label, "peak_memory_bytes"),
        )
        for label in labels
    ]


def _mean(study: Study, label: str, field: str) -> float | None:
    known = [number for run in study.finished(label) if (number := run["cost"].get(field))]
    return fmean(known) if known else None


def _training_share(study: Study, choice: Choice) -> float | None:
    if choice.next is None or len(choice.labels) > 1:
        return None
    own, other = (_smooth(study, label) for label in (choice.labels[0], choice.next))
    if not own or not other or len(own) != len(other):
        return None
    reached = next((place for place, loss in enumerate(own) if loss <= other[-1]), None)
    return None if reached is None else (reached + 1) / len(own)


def _smooth(study: Study, label: str) -> list[float]:
    """Return the training loss by step, averaged over seeds and over a share of the steps up to each."""
    curves = [run["training"]["loss"] for run in study.finished(label)[: study.seeds_drawn]]
    if not curves or len({len(curve) for curve in curves}) > 1:
        return []
    mean = [fmean(losses) for losses in zip(*curves, strict=True)]
    window = max(1, round(SMOOTHED_SHARE * len(mean)))
    total, smooth = 0.0, []
    for place, loss in enumerate(mean):
        total += loss - (mean[place - window] if place >= window else 0.0)
        # the mean of a shorter beginning is higher still: it cannot be below a final loss by chance alone
        smooth.append(total / min(place + 1, window))
    return smooth
