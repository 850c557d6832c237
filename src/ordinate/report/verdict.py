"""The verdict of a study: conclusions in sentences that claim only what is statistically significant."""

from collections.abc import Mapping, Sequence
from typing import Any

from ordinate.report.metric import Metric
from ordinate.report.provenance_text import provenance_warning
from ordinate.report.read import Study
from ordinate.report.summary import ArmSummary, LengthResult
from ordinate.report.tuning_text import tuning_warning
from ordinate.study.comparison import MOST_SEEDS
from ordinate.study.run import STATE_WORDS

# longer lists are cut after this many names; the rest are counted
MAX_NAMED = 10


def verdict(study: Study, entries: Sequence[ArmSummary]) -> list[str]:
    """Return the verdict as sentences, the advice first.

    A winner is named only if it is significantly better than every other.
    """
    if not entries:
        return ["No run has finished, so there are no results yet.", *unfinished_sentences(study)]
    kind = study.metric
    at = f"At the trained {kind.extent} ({entries[0].trained.length} {kind.extent_unit})"
    sentences = ranking_sentences(at, entries, kind, study.noun) + _chance(study, entries)
    sentences += kind.extra_sentences(_name(entries[0]), study.finished(entries[0].label))
    if any(len(entry.levels) > 1 for entry in entries):
        sentences += _beyond(entries, kind)
    return [
        _advice(entries, kind),
        *sentences,
        _caveat(study, entries),
        *tuning_warning([study]),
        *provenance_warning([study]),
        *unfinished_sentences(study),
    ]


def leader(entries: Sequence[ArmSummary], level: str = "behind") -> ArmSummary | None:
    """Return the entry that is significantly better than every other, after correction; None if there is none.

    With one seed that is said of these trained models, not of the recipes that trained them.
    """
    first = [entry for entry in entries if getattr(entry, level) is None]
    others = [getattr(entry, level) for entry in entries if getattr(entry, level) is not None]
    return first[0] if len(first) == 1 and others and all(found.significant for found in others) else None


def winner(entries: Sequence[ArmSummary], level: str = "behind") -> ArmSummary | None:
    """Return the leader if at least two seeds of each pair show it; None otherwise."""
    compared = [getattr(entry, level) for entry in entries if getattr(entry, level) is not None]
    return leader(entries, level) if all(found.seeds > 1 for found in compared) else None


def ranking_sentences(at: str, entries: Sequence[ArmSummary], kind: Metric, noun: str) -> list[str]:
    """State the winner, or that there is none, in sentences that begin with `at`."""
    best, *others = entries
    if not others:
        return [f"{at}, {_name(best)} has {_said(best.trained, kind)}. A comparison needs two {noun}s."]
    if best.trained.interval is None:
        return [
            f"{at}, {_name(best)} has the {kind.best} value, {_said(best.trained, kind)}. With fewer than "
            f"two {kind.units} there is no interval, so no winner can be named: evaluate on more of them."
        ]
    same = f"the same {kind.units}" + (" and seeds" if best.seeds > 1 else "")
    corrected = ", after correction for all comparisons" if len(others) > 1 else ""
    if leader(entries):
        nearest = _nearest(others)
        return [
            f"{at}, {_name(best)} {'wins' if winner(entries) else 'leads'}: {_said(best.trained, kind)}, "
            f"significantly better than every other {noun} on {same}{corrected}; the runner-up is {_name(nearest)}, "
            f"worse by {_gap(nearest, kind)}."
        ]
    alike = [entry for entry in others if not (entry.behind and entry.behind.significant)]
    sentences = [
        f"{at}, no winner can be named: {_name(best)} has the {kind.best} value, {_said(best.trained, kind)}, but on "
        f"{same} it does not differ significantly from {_list(_names(alike), 'or')}."
    ]
    ahead = [entry for entry in others if entry not in alike]
    if ahead:
        nearest = _nearest(ahead)
        which = f" (the smallest difference, to {_name(nearest)}, is {_gap(nearest, kind)})" if len(ahead) > 1 else ""
        which = which or f" by {_gap(nearest, kind)}"
        sentences.append(f"It is significantly better than {_list(_names(ahead))}{which}{corrected}.")
    return [*sentences, *_more(alike)]


def _nearest(entries: Sequence[ArmSummary]) -> ArmSummary:
    return min(entries, key=lambda entry: entry.behind.difference if entry.behind else 0.0)


def _gap(entry: ArmSummary, kind: Metric) -> str:
    found = entry.behind
    return kind.format_difference(found.difference, found.interval) if found else "an unknown amount"


def _more(alike: Sequence[ArmSummary]) -> list[str]:
    """State how many seeds would make the open differences significant."""
    open_ = [entry for entry in alike if entry.seeds > 1 and entry.behind]
    needed = {entry.label: entry.behind.seeds_needed for entry in open_ if entry.behind}
    decided = {label: seeds for label, seeds in needed.items() if seeds}
    sentences = []
    if decided:
        label, seeds = min(decided.items(), key=lambda item: item[1])
        last = max(decided.values())
        all_ = "both" if len(decided) == 2 else f"all {len(decided)} that more seeds can decide"
        more = f", and about {last} for {all_}" if len(decided) > 1 and last != seeds else ""
        sentences.append(
            f"If the true differences equal the observed ones, about {seeds} seeds are needed for “{label}”{more}."
        )
    if never := [entry for entry in open_ if not needed[entry.label]]:
        sentences.append(f"No number of seeds up to {MOST_SEEDS} would be enough for {_list(_names(never), 'or')}.")
    return sentences


def _chance(study: Study, entries: Sequence[ArmSummary]) -> list[str]:
    """Compare with the baseline that always gives the most frequent answer."""
    chance = study.training_data.get("chance")
    if chance is None:
        return []
    blind = [entry for entry in entries if entry.trained.interval and entry.trained.interval[0] <= chance]
    said = f"Always giving the most frequent answer has accuracy {study.metric.format_value(chance)}"
    verb = "is" if len(blind) == 1 else "are"
    return [f"{said}; {_list(_names(blind))} {verb} not significantly better." if blind else f"{said}."]


def _beyond(entries: Sequence[ArmSummary], kind: Metric) -> list[str]:
    able = _able(entries)
    times = able[0].longest.times
    unable = [entry for entry in entries if entry not in able]
    holding = [entry for entry in able if extrapolates(entry)]
    broken = sorted((entry for entry in able if not extrapolates(entry)), key=lambda entry: entry.longest.degradation)
    sentences = []
    if unable:
        sentences.append(
            f"{_list(_names(unable))} cannot be {kind.extent_verb.lower()} at {times} times that {kind.extent}."
        )
    if holding:
        sentences.append(
            f"{kind.extent_verb} at {times} times that {kind.extent}, {_list(_names(holding))} "
            f"{'is' if len(holding) == 1 else 'are'} not significantly worse than at the trained {kind.extent}."
        )
    if broken:
        falls = [f"{_name(entry)} by {kind.format_change(entry.longest.degradation)}" for entry in broken]
        lead = "Worse there" if holding else f"{kind.extent_verb} at {times} times that {kind.extent}, all get worse"
        sentences.append(f"{lead}, in {kind.name}: {_list(falls)}.")
    return [*sentences, *_ranking_beyond(entries, kind)]


def _ranking_beyond(entries: Sequence[ArmSummary], kind: Metric) -> list[str]:
    """State which is best at the longest length, or that none can be named."""
    if len(entries) < 2:
        return []
    first, best = leader(entries, "behind_longest"), _best_beyond(entries, kind)
    if first:
        wins = "wins" if winner(entries, "behind_longest") else "leads"
        return [f"There, {_name(first)} {wins}: {_said(first.longest, kind)}, significantly better than every other."]
    alike = [entry for entry in _able(entries) if entry is not best and not _worse_beyond(entry)]
    return [
        f"There, {_name(best)} has the {kind.best} value, {_said(best.longest, kind)}, but does not differ "
        f"significantly from {_list(_names(alike), 'or')}."
        if alike
        else f"There, only {_name(best)} has a value: {_said(best.longest, kind)}."
    ]


def extrapolates(entry: ArmSummary) -> bool:
    """Whether the longest length is not significantly worse than the trained one: the interval includes 0 or less."""
    longest = entry.longest
    return longest.degradation_interval[0] <= 0 if longest.degradation_interval else longest.degradation <= 0


def _able(entries: Sequence[ArmSummary]) -> list[ArmSummary]:
    """The entries with a value at the longest evaluated length."""
    times = max(entry.longest.times for entry in entries)
    return [entry for entry in entries if entry.longest.times == times]


def _best_beyond(entries: Sequence[ArmSummary], kind: Metric) -> ArmSummary:
    return min(_able(entries), key=lambda entry: kind.sign * entry.longest.value)


def _advice(entries: Sequence[ArmSummary], kind: Metric) -> str:
    """State which to use: exactly those that no test has excluded."""
    if len(entries) == 1:
        return f"Only {_name(entries[0])} was trained, so there is nothing to choose from."
    best, able = entries[0], _able(entries)
    near = [best, *(entry for entry in entries[1:] if not (entry.behind and entry.behind.significant))]
    furthest = _best_beyond(entries, kind)
    far = [entry for entry in able if entry is furthest or not _worse_beyond(entry)]
    use = "Use" if all(entry.seeds > 1 for entry in entries) else "Provisionally (one seed), use"
    if all(len(entry.levels) == 1 for entry in entries):
        return f"{use} {_one_of(near)} on {kind.this} {kind.source} at this size."
    if near == far:
        return (
            f"{use} {_one_of(near)}, whether {kind.inputs} stay within the trained {kind.extent} or the model must "
            f"{kind.extrapolation_phrase}."
        )
    return (
        f"{use} {_one_of(near)} if {kind.inputs} stay within the trained {kind.extent}, "
        f"{_one_of(far)} if the model must {kind.extrapolation_phrase}."
    )


def _one_of(entries: Sequence[ArmSummary]) -> str:
    """Name an entry, or those among which the data do not decide."""
    return _name(entries[0]) if len(entries) == 1 else f"one of {_list(_names(entries), 'or')}"


def _worse_beyond(entry: ArmSummary) -> bool:
    """Whether an entry is significantly worse than the best at the longest length."""
    return entry.behind_longest is not None and entry.behind_longest.significant


def _caveat(study: Study, entries: Sequence[ArmSummary]) -> str:
    drawn = f"{study.metric.unseen_word} {study.metric.units}"
    if study.plan["seeds"] == 1:
        return (
            f"Each was trained with one seed: the intervals are about these trained models on other {drawn}, not "
            "about the variance between training runs. A winner needs two seeds; --seeds 3 covers both."
        )
    seeds = sorted({entry.seeds for entry in entries})
    times = " to ".join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))
    return (
        f"Each was trained with {times} seeds: the intervals cover the choice of {study.metric.units} and the "
        "variance between seeds."
    )


def unfinished_sentences(study: Study) -> list[str]:
    """List runs that diverged or failed, planned runs without a result, and unreadable results."""
    sentences = []
    for status, word in STATE_WORDS.items():
        runs = [item["run"] for item in [*study.trials, *study.results] if item["status"] == status]
        if runs:
            names = [_titled(run) for run in runs]
            noun = "run" if len(runs) == 1 else "runs"
            sentences.append(f"{len(runs)} {noun} {word}: {_list(names)}.")
    if study.pending:
        count = len(study.pending)
        verb = "run has" if count == 1 else "runs have"
        sentences.append(f"{count} planned {verb} no result yet: {_list(study.pending)}.")
    return [*sentences, *(f"Left out: {line}." for line in study.damaged)]


def _titled(run: Mapping[str, Any]) -> str:
    tried = f" with learning rate {run['rate']:g}" if "rate" in run else f" seed {run['seed']}"
    return f"“{run['label']}”{tried}"


def _name(entry: ArmSummary) -> str:
    # quoted, since a scheme may be called none
    return f"“{entry.label}”"


def _names(entries: Sequence[ArmSummary]) -> list[str]:
    return [_name(entry) for entry in entries]


def _said(level: LengthResult, kind: Metric) -> str:
    return kind.sentence(level.value, level.interval)


def _list(words: Sequence[str], last: str = "and") -> str:
    if len(words) > MAX_NAMED + 1:
        words = [*words[:MAX_NAMED], f"{len(words) - MAX_NAMED} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else "none"
