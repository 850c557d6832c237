"""The answer of an evaluation in sentences that claim only what is statistically significant."""

from collections.abc import Sequence

from ordinate.evaluation.result import LengthResult, ModelDifference, ModelResult
from ordinate.evaluation.statistics import Interval


def answer(models: Sequence[ModelResult], differences: Sequence[ModelDifference]) -> list[str]:
    """Return the answer: which model is best where there are several, then how far each reads."""
    compared = {name for one in differences for name in (one.first, one.second)}
    groups = dict[tuple[str, int], list[ModelResult]]()
    for model in models:
        if model.name in compared:
            # models whose shortest lengths differ have no common length to be ranked at
            place = 1 if model.reference.times == 1 else model.reference.length
            groups.setdefault((model.unit, place), []).append(model)
    ranking = [_ranking(group, differences) for group in groups.values() if len(group) > 1]
    return [*ranking, *(how_far(model) for model in models)]


def how_far(model: ModelResult) -> str:
    """Say up to which length a model is not significantly worse than at the trained one."""
    first = model.reference
    longer = [one for one in model.lengths if one.length > first.length]
    value = f"{said(model, first)} {model.unit} at {extent(model, first)}"
    if not longer:
        return f"{model.name} has {value}; no longer {_noun(model)} could be evaluated."
    worse = [one for one in longer if one.is_worse]
    held = [one for one in longer if not worse or one.length < worse[0].length]
    trained = first.times == 1
    if not held:
        beyond = f"beyond its trained {_noun(model)}" if trained else f"beyond {extent(model, first)}"
        return f"{model.name} does not {_verb(model)} {beyond}: {_rise(model, worse[0])}, from {value}."
    last = held[-1]
    reach = f"{last.times} times its trained {_noun(model)}" if trained and last.times else extent(model, last)
    over = "" if trained else f" over {extent(model, first)}"
    word = "decrease" if model.higher_is_better else "increase"
    further = f" {_capital(_rise(model, worse[0]))}." if worse else ""
    return (
        f"{model.name} {_verb(model, 's')} up to {reach} without a significant {word}{over}: {value}, "
        f"{said(model, last)} at {extent(model, last)}.{further}"
    )


def said(model: ModelResult, result: LengthResult) -> str:
    """Format a value with its interval."""
    return f"{number(model, result.value)} {bounds(model, result.interval)}"


def number(model: ModelResult, value: float) -> str:
    """Format a value in the unit of the quantity: per cent, or three decimals."""
    return f"{_rounded(model, value)} %" if model.higher_is_better else _rounded(model, value)


def gap(model: ModelResult, value: float) -> str:
    """Format a difference between two values."""
    return f"{_rounded(model, value)} points" if model.higher_is_better else _rounded(model, value)


def bounds(model: ModelResult, interval: Interval | None) -> str:
    """Format a confidence interval in the unit of the quantity."""
    if interval is None:
        return "(interval unknown)"
    return f"[{_rounded(model, interval[0])}, {_rounded(model, interval[1])}]"


def _rounded(model: ModelResult, value: float) -> str:
    factor, digits = (100, 1) if model.higher_is_better else (1, 3)
    # adding 0.0 turns -0.0 into 0.0
    return f"{round(factor * value, digits) + 0.0:.{digits}f}"


def extent(model: ModelResult, result: LengthResult) -> str:
    """Format a length with its unit: "1,024 tokens"."""
    return f"{result.length:,} {model.extent_unit}"


def change(model: ModelResult, result: LengthResult) -> tuple[float, Interval | None]:
    """Return how the value differs from that at the trained length: value minus value, with its interval."""
    if not model.higher_is_better or result.degradation_interval is None:
        return (-1 if model.higher_is_better else 1) * result.degradation, result.degradation_interval
    low, high = result.degradation_interval
    return -result.degradation, (-high, -low)


def _rise(model: ModelResult, result: LengthResult) -> str:
    value, interval = change(model, result)
    verb = "falls" if model.higher_is_better else "rises"
    by = f"{gap(model, abs(value))} {bounds(model, _positive(interval))}"
    times = (
        f"{result.times} times that {_noun(model)} ({extent(model, result)})"
        if result.times
        else extent(model, result)
    )
    return f"at {times} it {verb} by {by}"


def _positive(interval: Interval | None) -> Interval | None:
    """The interval of the size of a difference that is significant: both ends have its sign."""
    if interval is None:
        return None
    low, high = sorted(map(abs, interval))
    return low, high


def _ranking(models: Sequence[ModelResult], differences: Sequence[ModelDifference]) -> str:
    """Compare the model that is best at the reference length with each other one."""
    better = max if models[0].higher_is_better else min
    best = better(models, key=lambda model: model.reference.value)
    names = {model.name for model in models}
    near = [one for one in differences if best.name in (one.first, one.second) and {one.first, one.second} <= names]
    near = [one for one in near if (one.times, one.length) == _place(best, one)]
    ahead, alike = [], []
    for one in near:
        other = one.second if one.first == best.name else one.first
        by = f" by {gap(best, abs(one.difference))} {bounds(best, _positive(one.interval))}"
        ahead += [f"{other}{by}"] if one.significant else []
        alike += [] if one.significant else [other]
    where = f"the trained {_noun(best)}" if best.reference.times == 1 else extent(best, best.reference)
    start = f"At {where}, {best.name} is best: {said(best, best.reference)} {best.unit}"
    beaten = f", significantly better than {_listed(ahead, 'and')}" if ahead else ""
    equal = f"; it does not differ significantly from {_listed(alike, 'or')}" if alike else ""
    return f"{start}{beaten}{equal}."


def _place(best: ModelResult, one: ModelDifference) -> tuple[int, int]:
    # the length of a difference is that of its first model
    return (1, one.length) if best.reference.times == 1 else (one.times, best.reference.length)


def _noun(model: ModelResult) -> str:
    return "size" if model.extent_unit == "pixels" else "length"


def _verb(model: ModelResult, ending: str = "") -> str:
    images = "classifies images of" if ending else "classify images"
    return images if model.extent_unit == "pixels" else f"read{ending}"


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
