"""What a study says, in sentences that claim no more than it measured."""

from collections.abc import Sequence

from ordinate.report.read import Study
from ordinate.report.summary import Entry, Level
from ordinate.study.statistics import overlap


def verdict(study: Study, entries: Sequence[Entry]) -> list[str]:
    """The verdict, sentence by sentence. Names a winner only where its interval is clear of every other's."""
    if not entries:
        return ["No run has finished, so there is nothing to say yet.", *_unfinished(study)]
    sentences = _at_trained_length(entries)
    if len(entries[0].levels) > 1:
        sentences += _beyond(entries)
    return [*sentences, _advice(entries), _caveat(study, entries), *_unfinished(study)]


def winner(entries: Sequence[Entry], level: str = "trained") -> Entry | None:
    """The scheme whose interval lies below every other's; None if there is none."""
    if len(entries) < 2:
        return None
    ordered = sorted(entries, key=lambda entry: getattr(entry, level).bits)
    best, *others = (getattr(entry, level).interval for entry in ordered)
    if best is None or any(other is None or overlap(best, other) for other in others):
        return None
    return ordered[0]


def _at_trained_length(entries: Sequence[Entry]) -> list[str]:
    best = entries[0]
    at = f"At the trained length ({best.trained.length} tokens)"
    if len(entries) == 1:
        return [f"{at} {_name(best)} needs {_bits(best.trained)}. A comparison needs two schemes."]
    if winner(entries):
        return [
            f"{at} {_name(best)} wins: {_bits(best.trained)}, clear of every other interval; "
            f"next is {_name(entries[1])} with {_bits(entries[1].trained)}."
        ]
    own = best.trained.interval
    close = [entry for entry in entries[1:] if not _clear(own, entry.trained.interval)]
    sentence = (
        f"{at} no winner can be named: {_name(best)} has the lowest number, {_bits(best.trained)}, "
        f"but its interval overlaps with {_list(_names(close))}."
    )
    known = [entry for entry in close if entry.behind_interval]
    ahead = [entry for entry in known if entry.behind_interval and entry.behind_interval[0] > 0]
    level = _names([entry for entry in known if entry not in ahead])
    if not known:
        return [sentence]
    if not ahead:
        return [sentence, f"Compared on the same documents, it cannot be told from {_list(level)} either."]
    nearest = min(ahead, key=lambda entry: entry.behind or 0)
    which = f", the nearest of them {_name(nearest)}," if len(ahead) > 1 else ""
    paired = f"Compared on the same documents, it is ahead of {_list(_names(ahead))}{which} by {_gap(nearest)}"
    paired += f", and cannot be told from {_list(level)}." if level else "."
    return [sentence, paired]


def _beyond(entries: Sequence[Entry]) -> list[str]:
    times = entries[0].longest.times
    holding = [entry for entry in entries if holds(entry)]
    broken = sorted((entry for entry in entries if not holds(entry)), key=lambda entry: entry.longest.rise)
    sentences = []
    if holding:
        sentences.append(
            f"Read at {times} times that length, {_list(_names(holding))} "
            f"{'holds' if len(holding) == 1 else 'hold'}: no worse than at the trained length."
        )
    if broken:
        rises = [f"{_name(entry)} by {entry.longest.rise:.2f}" for entry in broken]
        lead = "Worse there" if holding else f"Read at {times} times that length all get worse"
        sentences.append(f"{lead}, in bits per byte: {_list(rises)}.")
    first = winner(entries, "longest")
    lowest = min(entries, key=lambda entry: entry.longest.bits)
    if first and len(entries) > 1:
        sentences.append(f"There {_name(first)} wins: {_bits(first.longest)}, clear of every other interval.")
    elif len(entries) > 1:
        sentences.append(
            f"The lowest number there is that of {_name(lowest)}, {_bits(lowest.longest)}, not clear of all others."
        )
    return sentences


def holds(entry: Entry) -> bool:
    """Whether reading further than trained makes the scheme no worse than its interval allows."""
    longest = entry.longest
    return longest.rise_interval[0] <= 0 if longest.rise_interval else longest.rise <= 0


def _advice(entries: Sequence[Entry]) -> str:
    best, short = entries[0], winner(entries)
    others = [entry for entry in entries[1:] if not _clear(best.trained.interval, entry.trained.interval)]
    near = _names([best, *others])
    first = _name(short) if short else f"one of {_list(near, 'or')}" if others else _name(best)
    far = winner(entries, "longest") or min(entries, key=lambda entry: entry.longest.bits)
    if len(best.levels) == 1 or short is far:
        return f"Take {first} on this text at this size."
    return (
        f"Take {first} if texts stay within the trained length, "
        f"{_name(far)} if the model must read further than it was trained."
    )


def _caveat(study: Study, entries: Sequence[Entry]) -> str:
    if study.plan["seeds"] == 1:
        return (
            "Each was trained once: the intervals cover the choice of held-out documents, not the luck of training. "
            "With --seeds 3 they cover both."
        )
    most = max(entry.seeds for entry in entries)
    return f"Each was trained up to {most} times: the intervals cover documents and seeds."


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


def _bits(level: Level) -> str:
    sure = f" [{level.interval[0]:.3f}, {level.interval[1]:.3f}]" if level.interval else " (interval unknown)"
    return f"{level.bits:.3f}{sure} bits per byte"


def _gap(entry: Entry) -> str:
    low, high = entry.behind_interval or (float("nan"),) * 2
    return f"{entry.behind:.3f} [{low:.3f}, {high:.3f}]"


def _list(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else "none"
