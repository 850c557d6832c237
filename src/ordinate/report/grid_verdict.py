"""The verdict of a grid of studies, over all cells and cell by cell."""

from collections import Counter
from collections.abc import Sequence

from ordinate.report.decision import leader, winner
from ordinate.report.marginal_means import Cell, MarginalMean
from ordinate.report.provenance_text import provenance_warning
from ordinate.report.summary import ArmSummary
from ordinate.report.tuning_text import tuning_warning
from ordinate.report.verdict import left_out, ranking_sentences
from ordinate.study.run import STATE_WORDS


def grid_verdict(
    cells: Sequence[Cell],
    entries: Sequence[Sequence[ArmSummary]],
    margins: Sequence[MarginalMean],
    means: Sequence[Sequence[ArmSummary]],
    comparisons: int,
) -> list[str]:
    """Return the verdict, sentence by sentence: on average, by cell, then the scope of the statistics.

    Args:
        cells: the cells.
        entries: the entries of each cell, the best first.
        margins: the means over cells.
        means: the entries of each mean, the best first.
        comparisons: the number of comparisons that the correction covers.
    """
    sentences = []
    for margin, found in zip(margins, means, strict=True):
        if not margin.factor and found:
            several = len({type(one.metric) for one in margins}) > 1
            where = f"On average over {'the' if not several else 'these'} {margin.cells} cells"
            sentences += ranking_sentences(
                where + (f" measured by {margin.metric.name}" if several else ""), found, margin.metric, _noun(cells)
            )
    finished = [(cell, found) for cell, found in zip(cells, entries, strict=True) if found]
    if not finished:
        sentences.append("No run has finished, so there are no results yet.")
    else:
        sentences += _by_cell(finished)
    if cells[0][1].plan["seeds"] == 1:
        sentences.append(
            "Each was trained with one seed, so no winner can be named: the intervals do not cover the variance "
            "between training runs; --seeds 3 covers both."
        )
    elif comparisons:
        sentences.append(f"All {comparisons} comparisons on this page are corrected together by Holm's method.")
    sentences += tuning_warning([study for _, study in cells])
    sentences += provenance_warning([study for _, study in cells])
    return sentences + _unfinished(cells)


def _unfinished(cells: Sequence[Cell]) -> list[str]:
    """Count the runs that did not finish, tuning runs included; the tables of the cells name them."""
    states = Counter(item["status"] for _, study in cells for item in [*study.trials, *study.results])
    lines = [
        f"{states[status]} {'run' if states[status] == 1 else 'runs'} {word}."
        for status, word in STATE_WORDS.items()
        if states[status]
    ]
    pending = sum(len(study.pending) for _, study in cells)
    if pending:
        lines.append(f"{pending} planned {'run has' if pending == 1 else 'runs have'} no result yet.")
    return lines + left_out([line for _, study in cells for line in study.damaged])


def _by_cell(finished: Sequence[tuple[Cell, Sequence[ArmSummary]]]) -> list[str]:
    """State which entry wins in how many cells, and which leads with one seed only."""
    firsts = [(leader(found), "wins" if winner(found) else "leads") for _, found in finished]
    wins = Counter((first.label, verb) for first, verb in firsts if first)
    total = len(finished)
    if not wins:
        return [f"No winner can be named in any of the {total} cells."]
    listed = [f"“{label}” {verb} in {count}" for (label, verb), count in wins.most_common()]
    open_ = total - sum(wins.values())
    rest = f"; in {open_} none can be named" if open_ else ""
    said = f"Of {total} cells, {', '.join(listed)}{rest}."
    several = len({label for label, _ in wins}) > 1
    return [said, *(["Which is best depends on the cell."] if several else [])]


def _noun(cells: Sequence[Cell]) -> str:
    return cells[0][1].noun
