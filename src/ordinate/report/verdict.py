"""The verdict of a study: conclusions in sentences that claim only what is statistically significant."""

from collections.abc import Mapping, Sequence
from typing import Any

from ordinate.evaluation.comparison import MOST_SEEDS
from ordinate.evaluation.result import LengthResult
from ordinate.report.decision import best_at_longest, decide, entries_at_longest, leader, winner
from ordinate.report.metric import Metric
from ordinate.report.provenance_text import provenance_warning
from ordinate.report.read import Study
from ordinate.report.summary import ArmSummary
from ordinate.report.tuning_text import tuning_warning
from ordinate.report.wording import MAX_NAMED, listed, quoted
from ordinate.study.run import STATE_WORDS


def verdict(study: Study, entries: Sequence[ArmSummary]) -> list[str]:
    """Return the verdict as sentences, the decision first.

    A winner is named only if it is significantly better than every other.
    """
    return [decide(study, entries).answer, *findings(study, entries), *warnings(study)]


def findings(study: Study, entries: Sequence[ArmSummary]) -> list[str]:
    """Return what was found at the trained length and beyond it, as sentences."""
    if not entries:
        return []
    kind = study.metric
    at = f"At the trained {kind.extent} ({entries[0].trained.length} {kind.extent_unit})"
    sentences = ranking_sentences(at, entries, kind, study.noun) + _chance(study, entries)
    sentences += kind.extra_sentences(_name(entries[0]), study.finished(entries[0].label))
    if any(len(entry.levels) > 1 for entry in entries):
        sentences += _beyond(entries, kind)
    return [*sentences, _caveat(study, entries)]


def warnings(study: Study) -> list[str]:
    """Return what a reader must know before trusting the verdict: tuning, mixed versions, unfinished runs."""
    return [*tuning_warning([study]), *provenance_warning([study]), *unfinished_sentences(study)]


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
    alike = [entry for entry in others if not (entry.behind and entry.behind.significantly_above)]
    sentences = [
        f"{at}, no winner can be named: {_name(best)} has the {kind.best} value, {_said(best.trained, kind)}, but on "
        f"{same} it is not significantly better than {listed(_names(alike), 'or')}."
    ]
    ahead = [entry for entry in others if entry not in alike]
    if ahead:
        nearest = _nearest(ahead)
        which = f" (the smallest difference, to {_name(nearest)}, is {_gap(nearest, kind)})" if len(ahead) > 1 else ""
        which = which or f" by {_gap(nearest, kind)}"
        sentences.append(f"It is significantly better than {listed(_names(ahead))}{which}{corrected}.")
    return [*sentences, *_more(alike)]


def _nearest(entries: Sequence[ArmSummary]) -> ArmSummary:
    return min(entries, key=lambda entry: entry.behind.difference if entry.behind else 0.0)


def _gap(entry: ArmSummary, kind: Metric) -> str:
    found = entry.behind
    return kind.format_difference(found.difference, found.interval) if found else "an unknown amount"


def _more(alike: Sequence[ArmSummary]) -> list[str]:
    """State how many seeds would make the open differences significant."""
    open_ = [entry for entry in alike if entry.seeds > 1 and entry.behind and entry.behind.difference > 0]
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
        sentences.append(f"No number of seeds up to {MOST_SEEDS} would be enough for {listed(_names(never), 'or')}.")
    return sentences


def _chance(study: Study, entries: Sequence[ArmSummary]) -> list[str]:
    """Compare with the baseline that always gives the most frequent answer."""
    chance = study.training_data.get("chance")
    if chance is None:
        return []
    blind = [entry for entry in entries if entry.trained.interval and entry.trained.interval[0] <= chance]
    said = f"Always giving the most frequent answer has accuracy {study.metric.format_value(chance)}"
    verb = "is" if len(blind) == 1 else "are"
    return [f"{said}; {listed(_names(blind))} {verb} not significantly better." if blind else f"{said}."]


def _beyond(entries: Sequence[ArmSummary], kind: Metric) -> list[str]:
    able = entries_at_longest(entries)
    times = able[0].longest.times
    unable = [entry for entry in entries if entry not in able]
    holding = [entry for entry in able if extrapolates(entry)]
    broken = sorted((entry for entry in able if not extrapolates(entry)), key=lambda entry: entry.longest.degradation)
    sentences = []
    if unable:
        sentences.append(
            f"{listed(_names(unable))} cannot be {kind.extent_verb.lower()} at {times} times that {kind.extent}."
        )
    if holding:
        sentences.append(
            f"{kind.extent_verb} at {times} times that {kind.extent}, {listed(_names(holding))} "
            f"{'is' if len(holding) == 1 else 'are'} not significantly worse than at the trained {kind.extent}."
        )
    if broken:
        falls = [f"{_name(entry)} by {kind.format_change(entry.longest.degradation)}" for entry in broken]
        lead = "Worse there" if holding else f"{kind.extent_verb} at {times} times that {kind.extent}, all get worse"
        sentences.append(f"{lead}, in {kind.name}: {listed(falls)}.")
    return [*sentences, *_ranking_beyond(entries, kind)]


def _ranking_beyond(entries: Sequence[ArmSummary], kind: Metric) -> list[str]:
    """State which is best at the longest length, or that none can be named."""
    if len(entries) < 2:
        return []
    first, best = leader(entries, "behind_longest"), best_at_longest(entries, kind)
    if first:
        wins = "wins" if winner(entries, "behind_longest") else "leads"
        return [f"There, {_name(first)} {wins}: {_said(first.longest, kind)}, significantly better than every other."]
    alike = [
        entry
        for entry in entries_at_longest(entries)
        if entry is not best and not (entry.behind_longest and entry.behind_longest.significantly_above)
    ]
    return [
        f"There, {_name(best)} has the {kind.best} value, {_said(best.longest, kind)}, but is not "
        f"significantly better than {listed(_names(alike), 'or')}."
        if alike
        else f"There, only {_name(best)} has a value: {_said(best.longest, kind)}."
    ]


def extrapolates(entry: ArmSummary) -> bool:
    """Whether the longest length is not significantly worse than the trained one: the interval includes 0 or less."""
    return not entry.longest.is_worse


def _caveat(study: Study, entries: Sequence[ArmSummary]) -> str:
    drawn = f"{study.metric.unseen_word} {study.metric.units}"
    if study.plan["seeds"] == 1:
        leading = [entry.label for entry in entries if entry.seeds > 1]
        also = (
            f", and {listed([quoted(label) for label in leading])} with {max(entry.seeds for entry in entries)}"
            if leading
            else ""
        )
        return (
            f"Each was trained with one seed{also}: the intervals are about these trained models on other {drawn}, "
            "not about the variance between training runs. A winner needs two seeds; --seeds 3 covers both."
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
            sentences.append(f"{len(runs)} {noun} {word}: {listed(names)}.")
    if study.pending:
        count = len(study.pending)
        verb = "run has" if count == 1 else "runs have"
        sentences.append(f"{count} planned {verb} no result yet: {listed(study.pending)}.")
    return [*sentences, *left_out(study.damaged)]


def left_out(damaged: Sequence[str]) -> list[str]:
    """List the results that cannot be used; of many, the first."""
    rest = len(damaged) - MAX_NAMED
    more = [f"{rest} more results cannot be used; repeating the command trains their runs again."] if rest > 0 else []
    return [*(f"Left out: {line}." for line in damaged[:MAX_NAMED]), *more]


def _titled(run: Mapping[str, Any]) -> str:
    tried = f" with learning rate {run['rate']:g}" if "rate" in run else f" seed {run['seed']}"
    return f"“{run['label']}”{tried}"


def _said(level: LengthResult, kind: Metric) -> str:
    return kind.sentence(level.value, level.interval)


def _name(entry: ArmSummary) -> str:
    return quoted(entry.label)


def _names(entries: Sequence[ArmSummary]) -> list[str]:
    return [quoted(entry.label) for entry in entries]
