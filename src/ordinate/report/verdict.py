"""What a study says, in sentences that claim no more than it measured."""

from collections.abc import Sequence

from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.report.summary import Entry, Level
from ordinate.study.statistics import overlap

# of more names than this, the rest are counted
NAMED = 10


def verdict(study: Study, entries: Sequence[Entry]) -> list[str]:
    """The verdict, sentence by sentence. Names a winner only where its interval is clear of every other's."""
    if not entries:
        return ["No run has finished, so there is nothing to say yet.", *_unfinished(study)]
    kind = study.quantity
    sentences = _at_trained_length(entries, kind, study.noun) + _chance(study, entries)
    if len(entries[0].levels) > 1:
        sentences += _beyond(entries, kind)
    return [*sentences, _advice(entries, kind), _caveat(study, entries), *_unfinished(study)]


def winner(entries: Sequence[Entry], kind: Quantity, level: str = "trained") -> Entry | None:
    """The one whose interval is better than every other's; None if there is none."""
    if len(entries) < 2:
        return None
    ordered = sorted(entries, key=lambda entry: kind.sign * getattr(entry, level).value)
    best, *others = (getattr(entry, level).interval for entry in ordered)
    if best is None or any(other is None or overlap(best, other) for other in others):
        return None
    return ordered[0]


def _at_trained_length(entries: Sequence[Entry], kind: Quantity, noun: str) -> list[str]:
    best = entries[0]
    at = f"At the trained length ({best.trained.length} tokens)"
    if len(entries) == 1:
        return [f"{at} {_name(best)} has {_said(best.trained, kind)}. A comparison needs two {noun}s."]
    if winner(entries, kind):
        return [
            f"{at} {_name(best)} wins: {_said(best.trained, kind)}, clear of every other interval; "
            f"next is {_name(entries[1])} with {_said(entries[1].trained, kind)}."
        ]
    own = best.trained.interval
    close = [entry for entry in entries[1:] if not _clear(own, entry.trained.interval)]
    sentence = (
        f"{at} no winner can be named: {_name(best)} has the {kind.best} number, {_said(best.trained, kind)}, "
        f"but its interval overlaps with {_list(_names(close))}."
    )
    known = [entry for entry in close if entry.behind_interval]
    ahead = [entry for entry in known if entry.behind_interval and entry.behind_interval[0] > 0]
    level = _names([entry for entry in known if entry not in ahead])
    if not known:
        return [sentence]
    if not ahead:
        return [sentence, f"Compared on the same {kind.units}, it cannot be told from {_list(level)} either."]
    nearest = min(ahead, key=lambda entry: entry.behind or 0)
    which = f", the nearest of them {_name(nearest)}," if len(ahead) > 1 else ""
    by = kind.gap(nearest.behind or 0.0, nearest.behind_interval)
    paired = f"Compared on the same {kind.units}, it is ahead of {_list(_names(ahead))}{which} by {by}"
    paired += f", and cannot be told from {_list(level)}." if level else "."
    return [sentence, paired]


def _chance(study: Study, entries: Sequence[Entry]) -> list[str]:
    """Who cannot be told from one that always gives the likeliest answer."""
    chance = study.about.get("task", {}).get("chance")
    if chance is None:
        return []
    blind = [entry for entry in entries if entry.trained.interval and entry.trained.interval[0] <= chance]
    said = f"Always giving the likeliest answer is right in {study.quantity.text(chance)}"
    return [f"{said}; {_list(_names(blind))} cannot be told from that." if blind else f"{said}."]


def _beyond(entries: Sequence[Entry], kind: Quantity) -> list[str]:
    times = entries[0].longest.times
    holding = [entry for entry in entries if holds(entry)]
    broken = sorted((entry for entry in entries if not holds(entry)), key=lambda entry: entry.longest.worse)
    sentences = []
    if holding:
        sentences.append(
            f"Read at {times} times that length, {_list(_names(holding))} "
            f"{'holds' if len(holding) == 1 else 'hold'}: no worse than at the trained length."
        )
    if broken:
        falls = [f"{_name(entry)} by {kind.difference(entry.longest.worse)}" for entry in broken]
        lead = "Worse there" if holding else f"Read at {times} times that length all get worse"
        sentences.append(f"{lead}, in {kind.name}: {_list(falls)}.")
    first = winner(entries, kind, "longest")
    best = _best_beyond(entries, kind)
    if first and len(entries) > 1:
        sentences.append(f"There {_name(first)} wins: {_said(first.longest, kind)}, clear of every other interval.")
    elif len(entries) > 1:
        sentences.append(
            f"The {kind.best} number there is that of {_name(best)}, {_said(best.longest, kind)}, "
            "not clear of all others."
        )
    return sentences


def holds(entry: Entry) -> bool:
    """Whether reading further than trained makes it no worse than its interval allows."""
    longest = entry.longest
    return longest.worse_interval[0] <= 0 if longest.worse_interval else longest.worse <= 0


def _best_beyond(entries: Sequence[Entry], kind: Quantity) -> Entry:
    return min(entries, key=lambda entry: kind.sign * entry.longest.value)


def _advice(entries: Sequence[Entry], kind: Quantity) -> str:
    best, short = entries[0], winner(entries, kind)
    others = [entry for entry in entries[1:] if not _clear(best.trained.interval, entry.trained.interval)]
    near = _names([best, *others])
    first = _name(short) if short else f"one of {_list(near, 'or')}" if others else _name(best)
    far = winner(entries, kind, "longest") or _best_beyond(entries, kind)
    if len(best.levels) == 1 or short is far:
        return f"Take {first} on this {kind.source} at this size."
    return (
        f"Take {first} if {kind.inputs} stay within the trained length, "
        f"{_name(far)} if the model must read further than it was trained."
    )


def _caveat(study: Study, entries: Sequence[Entry]) -> str:
    drawn = f"held-out {study.quantity.units}" if study.quantity.sign > 0 else f"fresh {study.quantity.units}"
    if study.plan["seeds"] == 1:
        return (
            f"Each was trained once: the intervals cover the choice of {drawn}, not the luck of training. "
            "With --seeds 3 they cover both."
        )
    most = max(entry.seeds for entry in entries)
    return f"Each was trained up to {most} times: the intervals cover {study.quantity.units} and seeds."


def _unfinished(study: Study) -> list[str]:
    sentences = []
    for status, word in (("diverged", "diverged (the loss stopped being a number)"), ("failed", "failed")):
        runs = [item["run"] for item in study.results if item["status"] == status]
        if runs:
            names = [f"“{run['label']}” seed {run['seed']}" for run in runs]
            sentences.append(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} {word}: {_list(names)}.")
    if study.pending:
        count = len(study.pending)
        verb = "run has" if count == 1 else "runs have"
        sentences.append(f"{count} planned {verb} no result yet: {_list(study.pending)}.")
    return [*sentences, *(f"Left out: {line}." for line in study.damaged)]


def _clear(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    return one is not None and other is not None and not overlap(one, other)


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
