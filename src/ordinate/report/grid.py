"""HTML page of a grid: every cell, means over cells, with one multiple-testing correction for all comparisons."""

import shlex
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import Any

from ordinate.evaluation.comparison import Comparison
from ordinate.evaluation.result import LengthResult
from ordinate.report.decision import leader, winner
from ordinate.report.grid_verdict import grid_verdict
from ordinate.report.html import content_policy, template_environment
from ordinate.report.marginal_means import Cell, MarginalMean, marginal_means
from ordinate.report.metric import Metric
from ordinate.report.page import TITLES
from ordinate.report.read import Study, load_cells
from ordinate.report.study_facts import method, study_facts
from ordinate.report.summary import ArmSummary, summarise_all
from ordinate.report.svg_plots import forest_plots
from ordinate.report.table import TableRow, table_rows
from ordinate.report.tuning_text import rate_table, steps_table, tuning_records
from ordinate.study.run import describe_cell

# most plots in one row of the page
MAX_PLOTS_IN_ROW = 4


class GridReport:
    """The results of a grid, ready for its page.

    Args:
        folder: of the study.
        about: the contents of its study.json.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.cells: list[Cell] = load_cells(folder, about)
        self.margins: list[MarginalMean] = marginal_means(self.cells)
        self.ranked, self.means = summarise_all(
            [study for _, study in self.cells],
            [margin.tables for margin in self.margins],
            [margin.metric for margin in self.margins],
        )
        self.comparisons = sum(comb(len(entries), 2) for entries in [*self.ranked, *self.means])

    def page(self) -> str:
        """Return a self-contained HTML page without scripts."""
        values, first = self.cells[0]
        kinds = list(dict.fromkeys(study.metric.definition for _, study in self.cells))
        rates = [(describe_cell(one), table) for one, study in self.cells if (table := rate_table(study))]
        steps = [(describe_cell(one), found) for one, study in self.cells if (found := steps_table(study))]
        seeds = first.plan["seeds"]
        return (
            template_environment()
            .get_template("grid.html.jinja")
            .render(
                title=f"{TITLES[first.noun]}: {len(first.arms)} compared in {len(self.cells)} cells",
                subtitle=f"{first.noun.capitalize()}s crossed with {self._factors()}; each trained "
                f"with {'1 seed' if seeds == 1 else f'{seeds} seeds'} in each cell.",
                policy=content_policy(),
                verdict=self.verdict,
                forests=forest_plots(self.cells, self.ranked),
                across=self._across(),
                noun=first.noun,
                units=first.metric.units,
                comparisons=self.comparisons,
                margins=self._margins(),
                lacking=[f"Left out of {one.name}: {', '.join(one.missing)}." for one in self.margins if one.missing],
                cells=[_cell(cell, entries) for cell, entries in zip(self.cells, self.ranked, strict=True)],
                explained=" ".join(kinds),
                example=shlex.join(f"{name}={value}" for name, value in values.items()),
                rates=rates,
                steps=steps,
                method=method(first),
                facts=study_facts(first, self._varied(), [study for _, study in self.cells[1:]]),
                command=first.manifest["command"],
            )
        )

    @property
    def verdict(self) -> list[str]:
        """The verdict, sentence by sentence."""
        return grid_verdict(self.cells, self.ranked, self.margins, self.means, self.comparisons)

    def _factors(self) -> str:
        names = self.cells[0][0]
        values = {name: dict.fromkeys(str(cell[name]) for cell, _ in self.cells) for name in names}
        return " and ".join(f"{name.replace('_', ' ')} ({', '.join(found)})" for name, found in values.items())

    def _varied(self) -> set[str]:
        """Fields of the plan that differ between cells."""
        plans = [study.plan for _, study in self.cells]
        return {name for name in plans[0] if any(plan[name] != plans[0][name] for plan in plans)}

    def _across(self) -> int:
        """Plots in a row: one for each value of the last factor if they fit, else 3."""
        count = len({list(values.values())[-1] for values, _ in self.cells})
        return count if count <= MAX_PLOTS_IN_ROW else 3

    def _margins(self) -> list[dict[str, Any]]:
        """A table for each metric, with a column for each mean."""
        tables = []
        for kind in dict.fromkeys(type(margin.metric) for margin in self.margins):
            columns = [
                (margin, entries)
                for margin, entries in zip(self.margins, self.means, strict=True)
                if type(margin.metric) is kind
            ]
            labels = list(dict.fromkeys(entry.label for _, entries in columns for entry in entries))
            several = len({type(margin.metric) for margin in self.margins}) > 1
            tables.append(
                {
                    "title": columns[0][0].metric.name if several else "",
                    "heads": [
                        f"{margin.name} ({margin.cells} cells)" if margin.factor else margin.name
                        for margin, _ in columns
                    ],
                    "rows": [{"label": one, "cells": [_mean(one, *column) for column in columns]} for one in labels],
                }
            )
        return tables


def _mean(label: str, margin: MarginalMean, entries: Sequence[ArmSummary]) -> dict[str, Any]:
    found = next((entry for entry in entries if entry.label == label), None)
    if found is None:
        return {"value": "", "best": False, "behind": ""}
    behind = format_paired_difference(found.behind, margin.metric) if found.behind else "best"
    return {
        "value": margin.metric.format_value(found.trained.value),
        "best": found is leader(entries),
        "behind": behind,
    }


def _cell(cell: Cell, entries: Sequence[ArmSummary]) -> dict[str, Any]:
    (values, study), first = cell, leader(entries)
    columns = _columns(study, entries)
    found = [
        {
            "label": row.label,
            "status": "" if row.status == f"{study.plan['seeds']} done" else row.status,
            "cells": [said(row, row.entry) if row.entry else "" for said in columns.values()],
            "first": first is not None and row.entry is first,
        }
        for row in table_rows(study, entries)
    ]
    said = "no winner can be named" if entries else "no run has finished"
    if first:
        said = f"“{first.label}” {'wins' if winner(entries) else 'leads'}"
    return {"title": describe_cell(values), "said": said, "heads": list(columns), "rows": found}


def _columns(study: Study, entries: Sequence[ArmSummary]) -> dict[str, Callable[[TableRow, ArmSummary], str]]:
    """The columns of a cell's table by heading, without columns that would be empty."""
    kind, taken, budgets = study.metric, tuning_records(study), dict(steps_table(study) or [])
    longest = max((times for entry in entries for times in entry.levels), default=1)
    columns: dict[str, Callable[[TableRow, ArmSummary], str]] = {
        kind.name: lambda row, entry: _with_bounds(entry.trained, kind),
        "difference": lambda row, entry: format_paired_difference(entry.behind, kind),
        "effect": lambda row, entry: _effect(entry.behind),
        "seeds needed": lambda row, entry: _seeds_needed(entry.behind),
    }
    if longest > 1:
        columns[f"at {longest}x"] = lambda row, entry: (
            kind.format_value(entry.levels[longest].value) if longest in entry.levels else ""
        )
    if taken:
        columns["learning rate"] = lambda row, entry: f"{taken[row.label]['rate']:.3g}" if row.label in taken else ""
    if budgets:
        columns["steps"] = lambda row, entry: f"{budgets[row.label]:,}"
    columns["parameters"] = lambda row, entry: f"{row.numbers['parameters_trained']:,}"
    return columns


def format_paired_difference(found: Comparison | None, kind: Metric) -> str:
    """Format the difference to the best with its interval, and whether it is significant."""
    if found is None:
        return ""
    bounds = f" {kind.format_interval(found.interval)}" if found.interval else ""
    plus = "+" if found.difference >= 0 else ""
    return f"{plus}{kind.format_value(found.difference)}{bounds}{' significant' if found.significant else ''}"


def _with_bounds(level: LengthResult, kind: Metric) -> str:
    return (
        f"{kind.format_value(level.value)} {kind.format_interval(level.interval)}"
        if level.interval
        else kind.format_value(level.value)
    )


def _effect(found: Comparison | None) -> str:
    return f"{found.effect:.1f}" if found and found.effect is not None else ""


def _seeds_needed(found: Comparison | None) -> str:
    """Seeds needed for significance, for a difference that is not significant yet."""
    return str(found.seeds_needed) if found and not found.significant and found.seeds_needed else ""
