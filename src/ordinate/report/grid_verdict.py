"""What a grid says, in sentences that claim no more than it measured."""

from collections import Counter
from collections.abc import Sequence

from ordinate.report.margins import Cell, Margin
from ordinate.report.summary import Entry
from ordinate.report.trials import tuning_said
from ordinate.report.verdict import leader, ranked
from ordinate.study.state import WORDS


def grid_verdict(
    cells: Sequence[Cell],
    entries: Sequence[Sequence[Entry]],
    margins: Sequence[Margin],
    means: Sequence[Sequence[Entry]],
    comparisons: int,
) -> list[str]:
    """The verdict, sentence by sentence: on average, then where that does not hold, then what all this covers."""
    sentences = []
    for margin, found in zip(margins, means, strict=True):
        if not margin.factor and found:
            several = len({type(one.kind) for one in margins}) > 1
            where = f"On average over {'the' if not several else 'these'} {margin.cells} cells"
            sentences += ranked(
                where + (f" measured by {margin.kind.name}" if several else ""), found, margin.kind, _noun(cells)
            )
    finished = [(cell, found) for cell, found in zip(cells, entries, strict=True) if found]
    if not finished:
        sentences.append("No run has finished, so there is nothing to say yet.")
    else:
        sentences += _by_cell(finished)
    if cells[0][1].plan["seeds"] == 1:
        sentences.append(
            "Each was trained once, so nothing is said to win: all this leaves out the luck of training. With "
            "--seeds 3 it covers both."
        )
    elif comparisons:
        sentences.append(f"All {comparisons} comparisons of this page are corrected together, by Holm's method.")
    sentences += tuning_said([study for _, study in cells])
    return sentences + _unfinished(cells)


def _unfinished(cells: Sequence[Cell]) -> list[str]:
    """How many runs were not done, trials among them; the tables of the cells say which."""
    states = Counter(item["status"] for _, study in cells for item in [*study.trials, *study.results])
    lines = [
        f"{states[status]} {'run' if states[status] == 1 else 'runs'} {word}."
        for status, word in WORDS.items()
        if states[status]
    ]
    pending = sum(len(study.pending) for _, study in cells)
    if pending:
        lines.append(f"{pending} planned {'run has' if pending == 1 else 'runs have'} no result yet.")
    return lines + [f"Left out: {line}." for _, study in cells for line in study.damaged]


def _by_cell(finished: Sequence[tuple[Cell, Sequence[Entry]]]) -> list[str]:
    """Who wins in how many cells."""
    firsts = [leader(found) for _, found in finished]
    wins = Counter(first.label for first in firsts if first)
    total, verb = len(finished), "wins" if any(first and first.seeds > 1 for first in firsts) else "leads"
    if not wins:
        return [f"In none of the {total} cells can a winner be named."]
    listed = [f"“{label}” {verb} in {count}" for label, count in wins.most_common()]
    open_ = total - sum(wins.values())
    rest = f"; in {open_} none can be named" if open_ else ""
    said = f"Of {total} cells, {', '.join(listed)}{rest}."
    return [said, "Which is best depends on the cell." if len(wins) > 1 else ""][: 1 + (len(wins) > 1)]


def _noun(cells: Sequence[Cell]) -> str:
    return cells[0][1].noun
