"""What a study says, in sentences that claim no more than it measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.report.summary import Entry, Level
from ordinate.report.trials import tuning_said
from ordinate.study.comparison import MOST_SEEDS
from ordinate.study.state import WORDS

# of more names than this, the rest are counted
NAMED = 10


def verdict(study: Study, entries: Sequence[Entry]) -> list[str]:
    """The verdict, sentence by sentence. Names a winner only where every other is surely behind it, seed by seed."""
    if not entries:
        return ["No run has finished, so there is nothing to say yet.", *unfinished(study)]
    kind = study.quantity
    at = f"At the trained {kind.extent} ({entries[0].trained.length} {kind.extent_unit})"
    sentences = ranked(at, entries, kind, study.noun) + _chance(study, entries)
    sentences += kind.besides(_name(entries[0]), study.done(entries[0].label))
    if any(len(entry.levels) > 1 for entry in entries):
        sentences += _beyond(entries, kind)
    return [*sentences, _advice(entries, kind), _caveat(study, entries), *tuning_said([study]), *unfinished(study)]


def leader(entries: Sequence[Entry], level: str = "behind") -> Entry | None:
    """The one that every other is surely behind, all comparisons considered; None if there is none."""
    first = [entry for entry in entries if getattr(entry, level) is None]
    others = [getattr(entry, level) for entry in entries if getattr(entry, level) is not None]
    return first[0] if len(first) == 1 and others and all(found.sure for found in others) else None


def ranked(at: str, entries: Sequence[Entry], kind: Quantity, noun: str) -> list[str]:
    """Who wins, or that nobody does, in sentences that begin with where."""
    best, *others = entries
    same = f"the same {kind.units}" + (" and seeds" if best.seeds > 1 else "")
    if not others:
        return [f"{at} {_name(best)} has {_said(best.trained, kind)}. A comparison needs two {noun}s."]
    corrected = ", also after correction for all comparisons" if len(others) > 1 else ""
    if leader(entries):
        nearest = _nearest(others)
        wins = "wins" if best.seeds > 1 else "leads"
        return [
            f"{at} {_name(best)} {wins}: {_said(best.trained, kind)}, surely ahead of every other on "
            f"{same}{corrected}; next is {_name(nearest)}, behind by {_gap(nearest, kind)}."
        ]
    alike = [entry for entry in others if not (entry.behind and entry.behind.sure)]
    sentences = [
        f"{at} no winner can be named: {_name(best)} has the {kind.best} number, {_said(best.trained, kind)}, but on "
        f"{same} it cannot be told from {_list(_names(alike))}."
    ]
    ahead = [entry for entry in others if entry not in alike]
    if ahead:
        nearest = _nearest(ahead)
        which = f", the nearest of them {_name(nearest)}," if len(ahead) > 1 else ""
        sentences.append(f"It is surely ahead of {_list(_names(ahead))}{which} by {_gap(nearest, kind)}{corrected}.")
    return [*sentences, *_more(alike)]


def _nearest(entries: Sequence[Entry]) -> Entry:
    return min(entries, key=lambda entry: entry.behind.difference if entry.behind else 0.0)


def _gap(entry: Entry, kind: Quantity) -> str:
    found = entry.behind
    return kind.gap(found.difference, found.interval) if found else "an unknown amount"


def _more(alike: Sequence[Entry]) -> list[str]:
    """How many seeds would decide what these leave open."""
    open_ = [entry for entry in alike if entry.seeds > 1 and entry.behind]
    needed = {entry.label: entry.behind.seeds_needed for entry in open_ if entry.behind}
    decided = {label: seeds for label, seeds in needed.items() if seeds}
    sentences = []
    if decided:
        label, seeds = min(decided.items(), key=lambda item: item[1])
        last = max(decided.values())
        all_ = "both" if len(decided) == 2 else f"all {len(decided)} that seeds can decide"
        more = f", and {last} about {all_}" if len(decided) > 1 and last != seeds else ""
        sentences.append(f"Were the differences what they seem, {seeds} seeds would decide about “{label}”{more}.")
    if never := [entry for entry in open_ if not needed[entry.label]]:
        sentences.append(f"No number of seeds up to {MOST_SEEDS} would decide about {_list(_names(never))}.")
    return sentences


def _chance(study: Study, entries: Sequence[Entry]) -> list[str]:
    """Who cannot be told from one that always gives the likeliest answer."""
    chance = study.learned.get("chance")
    if chance is None:
        return []
    blind = [entry for entry in entries if entry.trained.interval and entry.trained.interval[0] <= chance]
    said = f"Always giving the likeliest answer is right in {study.quantity.text(chance)}"
    return [f"{said}; {_list(_names(blind))} cannot be told from that." if blind else f"{said}."]


def _beyond(entries: Sequence[Entry], kind: Quantity) -> list[str]:
    able = _able(entries)
    times = able[0].longest.times
    unable = [entry for entry in entries if entry not in able]
    holding = [entry for entry in able if holds(entry)]
    broken = sorted((entry for entry in able if not holds(entry)), key=lambda entry: entry.longest.worse)
    sentences = []
    if unable:
        sentences.append(
            f"{_list(_names(unable))} cannot be {kind.taken.lower()} at {times} times that {kind.extent}."
        )
    if holding:
        sentences.append(
            f"{kind.taken} at {times} times that {kind.extent}, {_list(_names(holding))} "
            f"{'holds' if len(holding) == 1 else 'hold'}: not surely worse than at the trained {kind.extent}."
        )
    if broken:
        falls = [f"{_name(entry)} by {kind.difference(entry.longest.worse)}" for entry in broken]
        lead = "Worse there" if holding else f"{kind.taken} at {times} times that {kind.extent} all get worse"
        sentences.append(f"{lead}, in {kind.name}: {_list(falls)}.")
    first = leader(entries, "behind_longest")
    best = _best_beyond(entries, kind)
    if first and len(entries) > 1:
        wins = "wins" if first.seeds > 1 else "leads"
        sentences.append(f"There {_name(first)} {wins}: {_said(first.longest, kind)}, surely ahead of every other.")
    elif len(entries) > 1:
        sentences.append(
            f"The {kind.best} number there is that of {_name(best)}, {_said(best.longest, kind)}, "
            "not surely ahead of all others."
        )
    return sentences


def holds(entry: Entry) -> bool:
    """Whether reading further than trained makes it no worse than its interval allows."""
    longest = entry.longest
    return longest.worse_interval[0] <= 0 if longest.worse_interval else longest.worse <= 0


def _able(entries: Sequence[Entry]) -> list[Entry]:
    """Those that were read as far as any was."""
    times = max(entry.longest.times for entry in entries)
    return [entry for entry in entries if entry.longest.times == times]


def _best_beyond(entries: Sequence[Entry], kind: Quantity) -> Entry:
    return min(_able(entries), key=lambda entry: kind.sign * entry.longest.value)


def _advice(entries: Sequence[Entry], kind: Quantity) -> str:
    best, short = entries[0], leader(entries)
    others = [entry for entry in entries[1:] if not (entry.behind and entry.behind.sure)]
    near = _names([best, *others])
    first = _name(short) if short else f"one of {_list(near, 'or')}" if others else _name(best)
    far = leader(entries, "behind_longest") or _best_beyond(entries, kind)
    if all(len(entry.levels) == 1 for entry in entries) or short is far:
        return f"Take {first} on {kind.this} {kind.source} at this size."
    return (
        f"Take {first} if {kind.inputs} stay within the trained {kind.extent}, "
        f"{_name(far)} if the model must {kind.beyond}."
    )


def _caveat(study: Study, entries: Sequence[Entry]) -> str:
    drawn = f"{study.quantity.drawn} {study.quantity.units}"
    if study.plan["seeds"] == 1:
        return (
            f"Each was trained once: all this covers the choice of {drawn}, not the luck of training, so nothing is "
            "said to win. With --seeds 3 it covers both."
        )
    seeds = sorted({entry.seeds for entry in entries})
    times = " to ".join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))
    return f"Each was trained {times} times: the intervals cover {study.quantity.units} and seeds."


def unfinished(study: Study) -> list[str]:
    """What became of runs that were not done, and which have no result."""
    sentences = []
    for status, word in WORDS.items():
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
    tried = f" trial of rate {run['rate']:g}" if "rate" in run else f" seed {run['seed']}"
    return f"“{run['label']}”{tried}"


def _name(entry: Entry) -> str:
    # in quotes, since a scheme may be called none
    return f"“{entry.label}”"


def _names(entries: Sequence[Entry]) -> list[str]:
    return [_name(entry) for entry in entries]


def _said(level: Level, kind: Quantity) -> str:
    return kind.said(level.value, level.interval)


def _list(words: Sequence[str], last: str = "and") -> str:
    if len(words) > NAMED + 1:
        words = [*words[:NAMED], f"{len(words) - NAMED} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else "none"
