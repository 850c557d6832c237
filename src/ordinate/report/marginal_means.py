"""Marginal means of a grid: over all cells, and over the cells that share the value of a factor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ordinate.evaluation.comparison import Measurements
from ordinate.report.metric import Metric
from ordinate.report.read import Study
from ordinate.report.summary import study_tables
from ordinate.study.run import describe_cell, digest

Cell = tuple[dict[str, Any], Study]


@dataclass(frozen=True)
class MarginalMean:
    """A mean over several cells.

    Args:
        name: which cells: all cells, or width 64.
        factor: the factor whose value they share; empty for all cells.
        cells: the number of cells.
        metric: the metric.
        tables: the pooled table of each label that finished in every cell.
        missing: labels that did not finish in every cell.
    """

    name: str
    factor: str
    cells: int
    metric: Metric
    tables: Mapping[str, Measurements]
    missing: tuple[str, ...]


def marginal_means(cells: Sequence[Cell]) -> list[MarginalMean]:
    """Return the means over all cells with the same metric, then those by factor value."""
    found = []
    for kind in dict.fromkeys(type(study.metric) for _, study in cells):
        alike = [cell for cell in cells if type(cell[1].metric) is kind]
        found.append(_margin("all cells", "", alike))
        for factor in alike[0][0]:
            values = list(dict.fromkeys(cell[0][factor] for cell in alike))
            parts = [[cell for cell in alike if cell[0][factor] == value] for value in values]
            if len(parts) > 1:
                found += [
                    _margin(describe_cell({factor: value}), factor, part)
                    for value, part in zip(values, parts, strict=True)
                ]
    # a mean over a single cell would repeat that cell
    return [margin for margin in found if margin.cells > 1]


def _margin(name: str, factor: str, cells: Sequence[Cell]) -> MarginalMean:
    tables = [study_tables(study, longest=False) for _, study in cells]
    named = list(dict.fromkeys(label for _, study in cells for label in study.arms))
    whole, missing = {}, []
    for label in named:
        parts = [table[label] for table in tables if label in table]
        seeds = set.intersection(*(set(part.seeds) for part in parts)) if parts else set()
        if len(parts) == len(cells) and seeds:
            units = [_units(study, label) for _, study in cells]
            whole[label] = pool_tables(parts, units, sorted(seeds))
        else:
            missing.append(label)
    return MarginalMean(name, factor, len(cells), cells[0][1].metric, whole, tuple(missing))


def pool_tables(parts: Sequence[Measurements], units: Sequence[Sequence[str]], seeds: Sequence[int]) -> Measurements:
    """Pool tables into one whose ratio is the mean of their ratios.

    Each cell has the same weight, whatever its size. A document that occurs in several cells is one unit of the
    pooled table, and a seed is one seed, so that neither is counted as independent evidence more than once.

    Args:
        parts: the table of each cell.
        units: for each cell the names of its documents; equal names mean the same document.
        seeds: the seeds that all cells have.
    """
    columns = {unit: column for column, unit in enumerate(dict.fromkeys(unit for names in units for unit in names))}
    amounts, sizes = np.zeros((len(seeds), len(columns))), np.zeros(len(columns))
    whole = sum(part.sizes.sum() for part in parts) / len(parts)
    for part, names in zip(parts, units, strict=True):
        where, weight = [columns[name] for name in names], whole / part.sizes.sum()
        # add.at and not +=, which would drop all but one of several equal indices
        np.add.at(sizes, where, part.sizes * weight)
        np.add.at(amounts.T, where, part.for_seeds(seeds).T * weight)
    return Measurements(tuple(seeds), amounts, sizes)


def _units(study: Study, label: str) -> list[str]:
    """Names of the evaluated documents, sequences or images, unique across data sets."""
    row = next(row for row in study.finished(label)[0]["lengths"] if study.metric.has_value(row))
    source = digest([study.training_data, study.plan["task"]])
    names = row["units"] or range(len(row["table"][1]))
    return [f"{source}/{name}" for name in names]
