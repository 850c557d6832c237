"""The finding of a comparison: answer, tables and charts."""

from collections.abc import Mapping, Sequence

import numpy as np

from ordinate.core.finding import Chart, Estimate, Finding, Grade, Line, Table
from ordinate.evaluation.outcome import Evaluation
from ordinate.evaluation.result import ModelDifference, PositionDifference
from ordinate.probing.measures.grading import ORDER
from ordinate.probing.measures.head_kinds import HeadKinds
from ordinate.probing.measures.head_matching import HeadMatches, matches_table
from ordinate.probing.measures.kinds_over_steps import KindOverSteps, over_steps_table

# lines of a chart that can be distinguished
MOST_LINES = 8
# pairs of models with a sentence each
MOST_PAIRS = 2
METHOD = (
    "All models predict the same tokens or bytes of the same documents. Differences are paired by document, with "
    "intervals that treat documents as the sample, and p-values corrected by Holm: over all lengths and pairs of "
    "models, and over all positions and pairs. Positions are grouped by powers of two. Heads are matched one to one "
    "by the overlap of their attention on half of the texts; overlap, interval and p-value are of the other half. A "
    "head appears at the first checkpoint of a run at which it is of a kind and its attention above the null is "
    "significantly larger than at the first checkpoint, on the same texts, after correction over heads, kinds and "
    "checkpoints (Benjamini and Hochberg, 5 %)."
)
NULL = "No difference; for matched heads the mean overlap with all other heads of the other model."


def compare_finding(
    evaluation: Evaluation,
    matches: Sequence[HeadMatches],
    kinds: Mapping[str, HeadKinds],
    steps: Mapping[str, int],
    over: Mapping[str, Sequence[KindOverSteps]],
    notes: Sequence[str],
) -> Finding:
    """Return the answer with its tables and charts.

    Args:
        evaluation: values and differences by length and position.
        matches: matched heads of consecutive models.
        kinds: kinds of heads of each model.
        steps: optimiser steps of those models that are checkpoints.
        over: of each run with two checkpoints or more, which kinds of heads appear.
        notes: what was not measured, and why.
    """
    tables = [_lengths_table(evaluation, steps), _differences_table(evaluation), _positions_table(evaluation)]
    tables += [matches_table(matches)] if matches else []
    tables += [_kinds_table(kinds)] if kinds else []
    tables += [_appeared_table(over)] if over else []
    charts = [_length_chart(evaluation), *_position_chart(evaluation), *_step_charts(evaluation, kinds, steps)]
    grade, effect, answer = _answer(evaluation)
    appear = [_over_sentence(run, own, len(over) > 1) for run, own in over.items()]
    return Finding(
        question="compare",
        title="Do these models predict the same text equally well, and do their heads agree?",
        grade=grade,
        effect=effect,
        answer=" ".join([answer, *appear, *_match_sentences(matches)]),
        estimates=tuple(one.appeared[0].rise for own in over.values() for one in own if one.appeared),
        tables=tuple(table for table in tables if table.rows),
        charts=tuple(charts),
        method=METHOD,
        null=NULL,
        caveats=(*evaluation.notes, *notes),
    )


def run_of(name: str) -> str:
    """Return the run that a checkpoint is of, by its name."""
    return name.partition(" step ")[0]


def _answer(found: Evaluation) -> tuple[Grade, Estimate | None, str]:
    if not found.differences:
        return "cannot be told", None, "No two of them are measured in the same unit."
    model = found.models[0]
    largest = max(found.differences, key=lambda one: (one.significant, abs(one.difference)))
    significant = sum(one.significant for one in found.differences)
    low, high = _ends(largest.interval)
    name = f"{largest.first} - {largest.second} at {largest.length:,} tokens"
    effect = Estimate(name=name, value=largest.difference, low=low, high=high, null=0.0, unit=model.unit)
    count = len(found.differences)
    if not significant:
        told = f"None of {count} differences is significant after correction"
        return "cannot be told", effect, f"{told}; this one, the largest, has corrected p {largest.adjusted:.2g}."
    told = f"{significant} of {count} differences between them are significant after correction"
    told = f"{told}; this one, the largest, has corrected p {largest.adjusted:.2g}."
    return "no", effect, told + _by_position(found.by_position, largest)


def _over_sentence(run: str, found: Sequence[KindOverSteps], several: bool) -> str:
    """Whether kinds of heads appear over training, the clearest first."""
    grade = min((one.grade for one in found), key=ORDER.index)
    told = [one.answer for one in found if one.appeared]
    for left in ("no", "cannot be told"):
        kinds = [one.kind for one in found if one.grade == left]
        if kinds and left == "no":
            told.append(f"No head becomes one of another kind ({', '.join(kinds)}).")
        elif kinds:
            told.append(f"Whether others appear cannot be told of {', '.join(kinds)} heads.")
    of = f" of {run}" if several else ""
    return f"Do kinds of heads appear over the training{of}? {grade.capitalize()}. {' '.join(told)}"


def _by_position(by_position: Sequence[PositionDifference], pair: ModelDifference) -> str:
    own = [one for one in by_position if (one.first, one.second) == (pair.first, pair.second)]
    clear = [one for one in own if one.adjusted < 0.05]
    if not own:
        return ""
    if not clear:
        return " At no position it is significant by itself."
    first, last = min(one.start for one in clear), max(one.stop for one in clear)
    return (
        f" By position, {len(clear)} of {len(own)} groups differ significantly, between {first:,} and {last - 1:,}."
    )


def _match_sentences(matches: Sequence[HeadMatches]) -> list[str]:
    if len(matches) <= MOST_PAIRS:
        return [_match_sentence(one) for one in matches]
    least = min(matches, key=_matched)
    same, pairs = _matched(least), len(least.pairs)
    return [
        f"Of each two models in a row, {same} to {max(map(_matched, matches))} of {pairs} heads overlap more with "
        f"their match than with other heads; fewest: {least.first} and {least.second}."
    ]


def _matched(one: HeadMatches) -> int:
    return int((one.adjusted_p <= 0.05).sum())


def _match_sentence(one: HeadMatches) -> str:
    same = _matched(one)
    return (
        f"Heads of {one.first} and {one.second}: {same} of {len(one.pairs)} overlap more with their match than with "
        f"other heads (median overlap {float(np.median(one.overlap)):.2f}, other heads "
        f"{float(np.median(one.null)):.2f}); {one.moved} have another layer or index."
    )


def _ends(interval: tuple[float, float] | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else interval


def _lengths_table(found: Evaluation, steps: Mapping[str, int]) -> Table:
    rows = [
        (
            model.name,
            steps.get(model.name),
            one.times or None,
            one.length,
            model.unit,
            one.value,
            *_ends(one.interval),
        )
        for model in found.models
        for one in model.lengths
    ]
    columns = ("model", "step", "multiple", "length", "unit", "value", "from", "to")
    return Table(title="Values by length", columns=columns, rows=tuple(rows))


def _differences_table(found: Evaluation) -> Table:
    rows = [
        (
            one.first,
            one.second,
            one.times or None,
            one.length,
            one.difference,
            *_ends(one.interval),
            one.p,
            one.adjusted,
        )
        for one in found.differences
    ]
    columns = ("first", "second", "multiple", "length", "first - second", "from", "to", "p", "p corrected")
    return Table(title="Differences by length", columns=columns, rows=tuple(rows))


def _positions_table(found: Evaluation) -> Table:
    rows = [
        (one.first, one.second, one.start, one.stop - 1, one.difference, *_ends(one.interval), one.p, one.adjusted)
        for one in found.by_position
    ]
    columns = ("first", "second", "position", "to position", "first - second", "from", "to", "p", "p corrected")
    return Table(title="Differences by position", columns=columns, rows=tuple(rows))


def _kinds_table(kinds: Mapping[str, HeadKinds]) -> Table:
    first = next(iter(kinds.values())).table()
    rows = tuple((name, *row) for name, own in kinds.items() for row in own.table().rows)
    return Table(title=first.title, columns=("model", *first.columns), rows=rows, caption=first.caption)


def _appeared_table(over: Mapping[str, Sequence[KindOverSteps]]) -> Table:
    tables = {run: over_steps_table(own) for run, own in over.items()}
    first = next(iter(tables.values()))
    rows = tuple((run, *row) for run, table in tables.items() for row in table.rows)
    return Table(title=first.title, columns=("run", *first.columns), rows=rows, caption=first.caption)


def _line(
    name: str, x: Sequence[float], values: Sequence[float], intervals: Sequence[tuple[float, float] | None]
) -> Line:
    places, ends = tuple(map(float, x)), [_ends(interval) for interval in intervals]
    if all(end is None for end, _ in ends):
        return Line(name=name, x=places, y=tuple(values))
    band = {"low": tuple(low for low, _ in ends), "high": tuple(high for _, high in ends)}
    return Line(name=name, x=places, y=tuple(values), **band)


def _length_chart(found: Evaluation) -> Chart:
    shown = found.models if len(found.models) <= MOST_LINES else (*found.models[: MOST_LINES - 1], found.models[-1])
    lines = [
        _line(model.name, [one.length for one in model.lengths], [one.value for one in model.lengths],
              [one.interval for one in model.lengths])
        for model in shown
    ]  # fmt: skip
    fewer = (
        f" The first {MOST_LINES - 1} and the last of {len(found.models)} models." if shown != found.models else ""
    )
    caption = f"Bands: 95 % intervals over {found.units}.{fewer}"
    return Chart(title="Value by length", x="length [tokens]", y=found.models[0].unit, lines=tuple(lines),
                 across="log", caption=caption)  # fmt: skip


def _position_chart(found: Evaluation) -> list[Chart]:
    pairs = list(dict.fromkeys((one.first, one.second) for one in found.by_position))
    if not pairs:
        return []
    names = [model.name for model in found.models]
    if len(pairs) > MOST_LINES:
        pairs = [pair for pair in pairs if names.index(pair[1]) - names.index(pair[0]) == 1][:MOST_LINES]
    lines = []
    for pair in pairs:
        own = [one for one in found.by_position if (one.first, one.second) == pair]
        # the middle of each group of positions, counted from 1 on a logarithmic axis
        places = [(one.start + one.stop + 1) / 2 for one in own]
        values, intervals = [one.difference for one in own], [one.interval for one in own]
        lines.append(_line(f"{pair[0]} - {pair[1]}", places, values, intervals))
    ends = [place for line in lines for place in line.x]
    lines.append(Line(name="no difference", x=(min(ends), max(ends)), y=(0.0, 0.0), null=True))
    return [Chart(title="Difference by position", x="position, from 1", y=f"difference, {found.models[0].unit}",
                  lines=tuple(lines), across="log", caption="Bands: 95 % intervals, not corrected.")]  # fmt: skip


def _step_charts(found: Evaluation, kinds: Mapping[str, HeadKinds], steps: Mapping[str, int]) -> list[Chart]:
    """Curves over training steps: values at each length, the strongest head of each kind, and heads of each kind."""
    models = sorted((model for model in found.models if model.name in steps), key=lambda model: steps[model.name])
    if len(models) < 2:
        return []
    runs = dict.fromkeys(run_of(model.name) for model in models)
    values: list[Line] = []
    strongest: list[Line] = []
    counts: list[Line] = []
    for run in runs:
        own = [model for model in models if run_of(model.name) == run]
        prefix = f"{run}, " if len(runs) > 1 else ""
        for length in dict.fromkeys(one.length for model in own for one in model.lengths):
            there = [(steps[model.name], one) for model in own for one in model.lengths if one.length == length]
            values.append(_line(f"{prefix}{length:,} tokens", [step for step, _ in there],
                                [one.value for _, one in there], [one.interval for _, one in there]))  # fmt: skip
        measured = {steps[model.name]: kinds[model.name] for model in own if model.name in kinds}
        if measured:
            strongest += _strongest(prefix, measured)
            counts += _counts(prefix, measured)
    charts = [("Value over steps", found.models[0].unit, values, f"Bands: 95 % intervals over {found.units}.")]
    if counts:
        told = "Of each kind the head that has most at the last checkpoint. Bands: 95 % intervals over texts."
        charts += [
            ("Strongest heads over steps", "attention above the null", strongest, told),
            ("Heads over steps", "heads", counts, "Heads that are of a kind, or weakly."),
        ]
    return [
        Chart(title=title, x="optimiser steps", y=y, lines=tuple(lines), caption=caption)
        for title, y, lines, caption in charts
    ]


def _strongest(prefix: str, measured: Mapping[int, HeadKinds]) -> list[Line]:
    """A line for each kind: the head with the most attention above the null at the last checkpoint."""
    lines, last = [], list(measured.values())[-1]
    for place, kind in enumerate(last.kinds):
        layer, head = np.unravel_index(int((kind.value - kind.null).argmax()), kind.value.shape)
        at = [one.kinds[place] for one in measured.values()]
        values = [float((one.value - one.null)[layer, head]) for one in at]
        ends = [(float(one.low[layer, head]), float(one.high[layer, head])) for one in at]
        name = last.kind_name(kind, int(layer), int(head))
        lines.append(_line(f"{prefix}{name}, {layer}.{head}", list(measured), values, ends))
    return lines


def _counts(prefix: str, measured: Mapping[int, HeadKinds]) -> list[Line]:
    """A line for each kind: how many heads are of it."""
    lines = []
    for place, kind in enumerate(next(iter(measured.values())).kinds):
        counted = [
            sum(one.kinds[place].verdict(*at) in ("yes", "weakly") for at in np.ndindex(*one.offset.shape))
            for one in measured.values()
        ]
        lines.append(
            _line(f"{prefix}{kind.name}", list(measured), [float(n) for n in counted], [None] * len(counted))
        )
    return lines
