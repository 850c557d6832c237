"""Means over the cells of a grid: of all, and of those that share the value of a factor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ordinate.report.quantity import Quantity
from ordinate.report.read import Study
from ordinate.report.summary import study_tables
from ordinate.study.comparison import Table
from ordinate.study.run import described, digest

Cell = tuple[dict[str, Any], Study]


@dataclass(frozen=True)
class Margin:
    """A mean over some cells.

    Args:
        name: which cells: all, or width 64.
        factor: whose value they share; empty: all.
        cells: how many they are.
        kind: what is averaged.
        tables: for each that was finished in every one of them, its mean as if it was measured at once.
        missing: those that were not.
    """

    name: str
    factor: str
    cells: int
    kind: Quantity
    tables: Mapping[str, Table]
    missing: tuple[str, ...]


def margins(cells: Sequence[Cell]) -> list[Margin]:
    """Every mean over several cells that are measured by one number: over all, then factor by factor."""
    found = []
    for kind in dict.fromkeys(type(study.quantity) for _, study in cells):
        alike = [cell for cell in cells if type(cell[1].quantity) is kind]
        found.append(_margin("all cells", "", alike))
        for factor in alike[0][0]:
            values = list(dict.fromkeys(cell[0][factor] for cell in alike))
            parts = [[cell for cell in alike if cell[0][factor] == value] for value in values]
            if len(parts) > 1:
                found += [
                    _margin(described({factor: value}), factor, part)
                    for value, part in zip(values, parts, strict=True)
                ]
    # one cell is no mean: it stands for itself
    return [margin for margin in found if margin.cells > 1]


def _margin(name: str, factor: str, cells: Sequence[Cell]) -> Margin:
    tables = [study_tables(study, longest=False) for _, study in cells]
    named = list(dict.fromkeys(label for _, study in cells for label in study.compared))
    whole, missing = {}, []
    for label in named:
        parts = [table[label] for table in tables if label in table]
        seeds = set.intersection(*(set(part.seeds) for part in parts)) if parts else set()
        if len(parts) == len(cells) and seeds:
            units = [_units(study, label) for _, study in cells]
            whole[label] = pooled(parts, units, sorted(seeds))
        else:
            missing.append(label)
    return Margin(name, factor, len(cells), cells[0][1].quantity, whole, tuple(missing))


def pooled(parts: Sequence[Table], units: Sequence[Sequence[str]], seeds: Sequence[int]) -> Table:
    """One table whose ratio is the mean of the ratios of these.

    Each cell counts as much as any other, however large it is. What was measured on the same document in several
    cells is one document here, and what was trained from the same seed one seed, so that neither is counted as
    evidence twice.

    Args:
        parts: of each cell.
        units: what each of its documents is called; the same name is the same document.
        seeds: which all cells have.
    """
    places = {unit: place for place, unit in enumerate(dict.fromkeys(unit for names in units for unit in names))}
    amounts, sizes = np.zeros((len(seeds), len(places))), np.zeros(len(places))
    whole = sum(part.sizes.sum() for part in parts) / len(parts)
    for part, names in zip(parts, units, strict=True):
        where, weight = [places[name] for name in names], whole / part.sizes.sum()
        np.add.at(sizes, where, part.sizes * weight)
        np.add.at(amounts.T, where, part.of(seeds).T * weight)
    return Table(tuple(seeds), amounts, sizes)


def _units(study: Study, label: str) -> list[str]:
    """What each document, sequence or image is called that this was measured on."""
    row = next(row for row in study.done(label)[0]["lengths"] if study.quantity.measured(row))
    source = digest([study.learned, study.plan["task"]])
    names = row["units"] or range(len(row["table"][1]))
    return [f"{source}/{name}" for name in names]
