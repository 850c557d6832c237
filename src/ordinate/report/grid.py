"""The page of a grid: every cell, means over cells, and one correction for all comparisons that were made."""

import shlex
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import Any

from ordinate.report.facts import facts, method
from ordinate.report.forest import forests
from ordinate.report.grid_verdict import grid_verdict
from ordinate.report.margins import Cell, Margin, margins
from ordinate.report.offline import environment
from ordinate.report.page import QUESTIONS
from ordinate.report.quantity import Quantity
from ordinate.report.read import Study, read_cells
from ordinate.report.summary import Entry, Level, summarise_all
from ordinate.report.table import Row, rows
from ordinate.report.trials import choices, rate_table, steps_table
from ordinate.report.verdict import leader
from ordinate.study.comparison import Comparison
from ordinate.study.run import described

# more pictures do not stand beside each other
ACROSS = 4


class Grid:
    """A grid as its page shows it.

    Args:
        folder: of the study.
        about: the contents of its study.json.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.cells: list[Cell] = read_cells(folder, about)
        self.margins: list[Margin] = margins(self.cells)
        self.ranked, self.means = summarise_all(
            [study for _, study in self.cells],
            [margin.tables for margin in self.margins],
            [margin.kind for margin in self.margins],
        )
        self.comparisons = sum(comb(len(entries), 2) for entries in [*self.ranked, *self.means])

    def page(self) -> str:
        """The page as HTML: one file, nothing fetched, nothing run."""
        values, first = self.cells[0]
        kinds = list(dict.fromkeys(study.quantity.explained for _, study in self.cells))
        rates = [(described(one), table) for one, study in self.cells if (table := rate_table(study))]
        steps = [(described(one), found) for one, study in self.cells if (found := steps_table(study))]
        seeds = first.plan["seeds"]
        return (
            environment()
            .get_template("grid.html.jinja")
            .render(
                title=f"{QUESTIONS[first.noun]} {len(first.compared)} compared in {len(self.cells)} cells",
                subtitle=f"{first.noun.capitalize()}s crossed with {self._factors()}; each trained "
                f"{'once' if seeds == 1 else f'{seeds} times'} in each cell.",
                verdict=self.verdict,
                forests=forests(self.cells, self.ranked),
                across=self._across(),
                noun=first.noun,
                units=first.quantity.units,
                comparisons=self.comparisons,
                margins=self._margins(),
                lacking=[
                    f"Over {one.name} are left out: {', '.join(one.missing)}." for one in self.margins if one.missing
                ],
                cells=[_cell(cell, entries) for cell, entries in zip(self.cells, self.ranked, strict=True)],
                explained=" ".join(kinds),
                example=shlex.join(f"{name}={value}" for name, value in values.items()),
                rates=rates,
                steps=steps,
                method=method(first),
                facts=facts(first, self._varied(), [study for _, study in self.cells[1:]]),
                command=first.about["command"],
            )
        )

    @property
    def verdict(self) -> list[str]:
        """What it says, sentence by sentence."""
        return grid_verdict(self.cells, self.ranked, self.margins, self.means, self.comparisons)

    def _factors(self) -> str:
        names = self.cells[0][0]
        values = {name: dict.fromkeys(str(cell[name]) for cell, _ in self.cells) for name in names}
        return " and ".join(f"{name.replace('_', ' ')} ({', '.join(found)})" for name, found in values.items())

    def _varied(self) -> set[str]:
        """Fields of the plan that are not the same in every cell."""
        plans = [study.plan for _, study in self.cells]
        return {name for name in plans[0] if any(plan[name] != plans[0][name] for plan in plans)}

    def _across(self) -> int:
        """Pictures beside each other: one for each value of the last factor, where there is room for so many."""
        count = len({list(values.values())[-1] for values, _ in self.cells})
        return count if count <= ACROSS else 3

    def _margins(self) -> list[dict[str, Any]]:
        """A table for each number that is averaged, with a column for each mean."""
        tables = []
        for kind in dict.fromkeys(type(margin.kind) for margin in self.margins):
            columns = [
                (margin, entries)
                for margin, entries in zip(self.margins, self.means, strict=True)
                if type(margin.kind) is kind
            ]
            labels = list(dict.fromkeys(entry.label for _, entries in columns for entry in entries))
            several = len({type(margin.kind) for margin in self.margins}) > 1
            tables.append(
                {
                    "title": columns[0][0].kind.name if several else "",
                    "heads": [
                        f"{margin.name} ({margin.cells} cells)" if margin.factor else margin.name
                        for margin, _ in columns
                    ],
                    "rows": [{"label": one, "cells": [_mean(one, *column) for column in columns]} for one in labels],
                }
            )
        return tables


def _mean(label: str, margin: Margin, entries: Sequence[Entry]) -> dict[str, Any]:
    found = next((entry for entry in entries if entry.label == label), None)
    if found is None:
        return {"value": "", "best": False, "behind": ""}
    behind = behind_words(found.behind, margin.kind) if found.behind else "best"
    return {"value": margin.kind.text(found.trained.value), "best": found is leader(entries), "behind": behind}


def _cell(cell: Cell, entries: Sequence[Entry]) -> dict[str, Any]:
    (values, study), first = cell, leader(entries)
    columns = _columns(study, entries)
    found = [
        {
            "label": row.label,
            "status": "" if row.status == f"{study.plan['seeds']} done" else row.status,
            "cells": [said(row, row.entry) if row.entry else "" for said in columns.values()],
            "first": first is not None and row.entry is first,
        }
        for row in rows(study, entries)
    ]
    said = "no winner can be named" if entries else "no run has finished"
    if first:
        said = f"“{first.label}” {'wins' if first.seeds > 1 else 'leads'}"
    return {"title": described(values), "said": said, "heads": list(columns), "rows": found}


def _columns(study: Study, entries: Sequence[Entry]) -> dict[str, Callable[[Row, Entry], str]]:
    """What is said of each in a cell, by the head of the column; only what some have."""
    kind, taken, budgets = study.quantity, choices(study), dict(steps_table(study) or [])
    longest = max((times for entry in entries for times in entry.levels), default=1)
    columns: dict[str, Callable[[Row, Entry], str]] = {
        kind.name: lambda row, entry: _with_bounds(entry.trained, kind),
        "behind": lambda row, entry: behind_words(entry.behind, kind),
        "effect": lambda row, entry: _effect(entry.behind),
        "seeds": lambda row, entry: _seeds(entry.behind),
    }
    if longest > 1:
        columns[f"at {longest}x"] = lambda row, entry: (
            kind.text(entry.levels[longest].value) if longest in entry.levels else ""
        )
    if taken:
        columns["learning rate"] = lambda row, entry: f"{taken[row.label]['rate']:.3g}" if row.label in taken else ""
    if budgets:
        columns["steps"] = lambda row, entry: f"{budgets[row.label]:,}"
    columns["parameters"] = lambda row, entry: f"{row.numbers['parameters_trained']:,}"
    return columns


def behind_words(found: Comparison | None, kind: Quantity) -> str:
    """How much worse than the best, with its interval, and whether that is sure."""
    if found is None:
        return ""
    bounds = f" {kind.bounds(found.interval)}" if found.interval else ""
    return f"+{kind.text(found.difference)}{bounds}{' sure' if found.sure else ''}"


def _with_bounds(level: Level, kind: Quantity) -> str:
    return f"{kind.text(level.value)} {kind.bounds(level.interval)}" if level.interval else kind.text(level.value)


def _effect(found: Comparison | None) -> str:
    return f"{found.effect:.1f}" if found and found.effect is not None else ""


def _seeds(found: Comparison | None) -> str:
    """How many would decide it, where it is open."""
    return str(found.seeds_needed) if found and not found.sure and found.seeds_needed else ""
