"""Calibration of the statistics of a study, by simulation: coverage of intervals, false winners, power.

Losses of each document are drawn from a model with effects of seeds, of documents and of both together, for models
that do not differ, or of which one is better. The formulas are those of `ordinate.evaluation.statistics`, for
thousands of draws at once; the first draws of each cell are compared with the library.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.harness.saving import Unfinished, save
from ordinate.evaluation.comparison import Measurements, compare
from ordinate.evaluation.statistics import CONFIDENCE, LARGEST_EXCESS

Floats = NDArray[np.float64]

DRAWS, QUICK_DRAWS = 40_000, 500
# sets of document sizes in each cell, over which the draws are spread: with 20 the sizes that happened to be drawn
# move coverage by more than the number of draws does
SIZE_SETS = 200
# error rates at which half-widths are tabulated, for p-values
ERRORS = np.logspace(-12, 0, 1500)
STEP = ERRORS[1] / ERRORS[0]
# standard deviations, relative to the standard error of a mean over documents: of seeds, documents, and both
COMPONENTS = {
    "seeds": (3.0, 0.1, 0.1),
    "documents": (0.1, 3.0, 0.1),
    "both": (1.0, 1.0, 1.0),
    "noise": (0.0, 0.0, 1.0),
}


@dataclass(frozen=True)
class Cell:
    """One setting of the simulation.

    Args:
        models: number of models.
        seeds: number of seeds.
        documents: number of documents.
        sizes: equal, or unequal: log-normal with standard deviation 1; of 20, the largest is 40 times the smallest.
        variances: equal, or unequal: the standard deviations of models differ by up to a factor of 100.
        tails: normal, or heavy: Student's t with 3 degrees of freedom.
        component: which variance component is the largest, of COMPONENTS.
    """

    models: int
    seeds: int
    documents: int
    sizes: str = "equal"
    variances: str = "equal"
    tails: str = "normal"
    component: str = "both"


def noise(random: np.random.Generator, tails: str, *shape: int) -> Floats:
    """Draw numbers with variance 1."""
    return random.normal(size=shape) if tails == "normal" else random.standard_t(3, shape) / np.sqrt(3)


def losses(random: np.random.Generator, cell: Cell, sizes: Floats, draws: int) -> Floats:
    """Draw amounts of models without a true difference: draws x models x seeds x documents."""
    of_seeds, of_documents, of_both = COMPONENTS[cell.component]
    if cell.seeds == 1:
        # one seed: the interval is about the trained models, whose true values are equal here
        of_seeds = 0.0
    scale = np.ones((draws, cell.models, 1, 1))
    if cell.variances == "unequal":
        scale = 10 ** random.uniform(-1, 1, (draws, cell.models, 1, 1))
    shape, root = (draws, cell.models), np.sqrt(cell.documents)
    return sizes * (
        scale * of_seeds * noise(random, cell.tails, *shape, cell.seeds, 1)
        + scale * of_documents * root * noise(random, cell.tails, *shape, 1, cell.documents)
        + scale * of_both * root * noise(random, cell.tails, *shape, cell.seeds, cell.documents)
    )


def components(amounts: Floats, sizes: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Return difference, V_s and V_d as in the interval, and degrees of freedom of V_d: draws x pairs.

    The influence of a pair is the difference of those of its models, so sums of squares follow from Gram matrices.
    """
    models, seeds = amounts.shape[1:3]
    total = sizes.sum()
    share = sizes / total
    per_seed = amounts.sum(-1) / total
    value = per_seed.mean(-1)
    influence = amounts / total - value[..., None, None] * share
    squares = float((share**2).sum())
    remaining = 1 - 2 * share + squares
    of_seeds = per_seed - value[..., None]
    of_documents = influence.mean(2)
    between = pair_squares(of_documents / np.sqrt(remaining), models)
    one, other = np.triu_indices(models, 1)
    difference, df = value[:, one] - value[:, other], max(1.0, (share**5).sum() ** (-1 / 4) - 1)
    if seeds == 1:
        return difference, np.zeros_like(difference), between, df
    rest = (influence - of_documents[:, :, None] - of_seeds[..., None] * share) / np.sqrt(remaining)
    interaction = pair_squares(rest.reshape(*rest.shape[:2], -1), models) / (seeds - 1) / seeds
    subtracted_share = max(0.0, 1 - (2 * squares) ** 2)
    variance = pair_squares(of_seeds, models) / (seeds - 1) / seeds
    beyond = between - subtracted_share * interaction
    excess = np.clip(-beyond, 0, LARGEST_EXCESS * variance)
    return difference, variance - excess, np.maximum(0, beyond), df


def pair_squares(vectors: Floats, models: int) -> Floats:
    """Return the squared distance of the vectors of each pair of models: draws x models x numbers."""
    one, other = np.triu_indices(models, 1)
    gram = vectors @ vectors.swapaxes(1, 2)
    own = np.diagonal(gram, axis1=1, axis2=2)
    return np.maximum(0, own[:, one] + own[:, other] - 2 * gram[:, one, other])


def p_values(value: Floats, of_seeds: Floats, of_documents: Floats, seeds: int, df: float) -> Floats:
    """Return the smallest tabulated error rate whose half-width is at most the difference."""
    both = [stats.t.isf(ERRORS / 2, degrees) ** 2 for degrees in (max(1, seeds - 1), df)]
    low, high = np.zeros(value.shape, int), np.full(value.shape, len(ERRORS) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        inside = both[0][middle] * of_seeds + both[1][middle] * of_documents > value**2
        low, high = np.where(inside, np.minimum(middle + 1, high), low), np.where(inside, high, middle)
    return ERRORS[low]


def judge(amounts: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Return difference and p-value of each pair of models: draws x pairs."""
    value, of_seeds, of_documents, df = components(amounts, sizes)
    return value, p_values(value, of_seeds, of_documents, amounts.shape[2], df)


def significant(p: Floats, error: float = 1 - CONFIDENCE) -> NDArray[np.bool_]:
    """Whether each p-value of a row is significant after Holm's correction."""
    count = p.shape[1]
    order = p.argsort(1)
    adjusted = np.maximum.accumulate(np.take_along_axis(p, order, 1) * np.arange(count, 0, -1), 1)
    found = np.empty(p.shape, bool)
    np.put_along_axis(found, order, adjusted < error, 1)
    return found


def leads(values: Floats, sure: NDArray[np.bool_], models: int) -> Floats:
    """Index of the model that is significantly better than every other in each draw; -1 where there is none."""
    found = np.full(len(values), -1)
    pairs = list(itertools.combinations(range(models), 2))
    for model in range(models):
        ahead = np.ones(len(values), bool)
        for index, pair in enumerate(pairs):
            if model in pair:
                ahead &= sure[:, index] & ((values[:, index] < 0) == (pair[0] == model))
        found[ahead] = model
    return found


def parts(cell: Cell, draws: int, seed: int = 0) -> Iterator[tuple[Floats, Floats]]:
    """Yield amounts and sizes of a cell, for one set of document sizes after another."""
    random = np.random.default_rng(seed)
    for _ in range(SIZE_SETS):
        sizes = np.ones(cell.documents) if cell.sizes == "equal" else np.exp(random.normal(0, 1, cell.documents))
        yield losses(random, cell, sizes, draws // SIZE_SETS), sizes


def false_winners(cell: Cell, draws: int) -> float:
    """Share of draws in which a winner is named among models that do not differ."""
    wrong = 0
    for amounts, sizes in parts(cell, draws):
        values, p = judge(amounts, sizes)
        wrong += int((leads(values, significant(p), cell.models) >= 0).sum())
    return wrong / draws


def pair_of_models(cell: Cell, draws: int) -> dict[str, float]:
    """Coverage of the interval of a pair, and its power beside that of the paired t-test over seeds.

    Power is for a difference of four standard errors.
    """
    values, p, plain = [], [], []
    for amounts, sizes in parts(cell, draws):
        value, chance = judge(amounts, sizes)
        values.append(value[:, 0])
        p.append(chance[:, 0])
    effect = 4 * np.concatenate(values).std()
    powers = []
    for amounts, sizes in parts(cell, draws, seed=1):
        amounts[:, 1] += effect * sizes
        powers.append(judge(amounts, sizes)[1][:, 0] < 1 - CONFIDENCE)
        if cell.seeds > 1:
            gaps = (amounts[:, 0] - amounts[:, 1]).sum(-1) / sizes.sum()
            plain.append(stats.ttest_1samp(gaps, 0, axis=1).pvalue < 1 - CONFIDENCE)
    found = {"coverage": float((np.concatenate(p) >= 1 - CONFIDENCE).mean()), "power": float(np.mean(powers))}
    return found | ({"power_of_t_test": float(np.mean(plain))} if plain else {})


def check(cell: Cell) -> None:
    """Compare the formulas above with the library, on a few draws."""
    amounts, sizes = next(parts(cell, 5 * SIZE_SETS))
    values, p = judge(amounts, sizes)
    for draw in range(5):
        tables = {str(i): Measurements(tuple(range(cell.seeds)), amounts[draw, i], sizes) for i in range(cell.models)}
        found = compare(tables)
        for index, (one, other) in enumerate(itertools.combinations(map(str, range(cell.models)), 2)):
            pair = found[one, other]
            np.testing.assert_allclose(pair.difference, values[draw, index], rtol=1e-9, atol=1e-12)
            # rounded up to the next tabulated error rate
            assert pair.p <= p[draw, index] * (1 + 1e-9) <= max(pair.p * 1.03, 2e-12), (pair.p, p[draw, index])


def pair_cells() -> list[Cell]:
    """The cells of pairs: coverage and power."""
    return [
        Cell(2, seeds, documents, sizes, "equal", tails, component)
        for seeds, documents, sizes, tails, component in itertools.product(
            (1, 2, 3, 5, 10), (2, 5, 20, 200), ("equal", "unequal"), ("normal", "heavy"), COMPONENTS
        )
        # of one trained model each there is no effect of seeds, and none of seeds x documents apart from documents
        if seeds > 1 or component == "documents"
    ]


def study_cells() -> list[Cell]:
    """The cells of studies: false winners. The largest are left out: they take most of the time."""
    return [
        Cell(models, seeds, documents, "unequal", variances, tails)
        for models, seeds, documents, variances, tails in itertools.product(
            (2, 5, 10, 30), (1, 2, 3, 5, 10), (2, 20, 200), ("equal", "unequal"), ("normal", "heavy")
        )
        if models * seeds * documents <= 6000
    ]


def main(save_it: bool, quick: bool = False) -> None:
    """Simulate every cell, and print the extremes by number of seeds."""
    draws, kept = QUICK_DRAWS if quick else DRAWS, Unfinished("calibration-quick" if quick else "calibration")
    rows: list[dict[str, Any]] = []
    cells = [*pair_cells(), *study_cells()]
    for index, cell in enumerate(cells):
        row = kept.get(cell)
        if row is None:
            check(cell)
            measured = pair_of_models(cell, draws) if index < len(pair_cells()) else {"false_winners": 0.0}
            if "false_winners" in measured:
                measured["false_winners"] = false_winners(cell, draws)
            row = vars(cell) | measured
            kept.put(cell, rows=row)
        rows.append(row)
        print(f"{index + 1}/{len(cells)}", *(f"{name}={value}" for name, value in row.items()), flush=True)
    print(summary(rows))
    if save_it:
        print(save("calibration", {"draws": draws, "cells": rows}))
        kept.forget()


def summary(rows: list[dict[str, Any]]) -> str:
    """Extremes by number of seeds, as text."""
    lines = []
    for seeds in sorted({row["seeds"] for row in rows}):
        own = [row for row in rows if row["seeds"] == seeds]
        covered = [row["coverage"] for row in own if "coverage" in row]
        many = [row["coverage"] for row in own if "coverage" in row and row["documents"] >= 20]
        wrong = max(row["false_winners"] for row in own if "false_winners" in row)
        lines.append(
            f"{seeds} seeds: coverage {min(covered):.3f} to {max(covered):.3f} (from 20 documents on "
            f"{min(many):.3f} to {max(many):.3f}); false winners at most {wrong:.3f}"
        )
    return "\n".join(lines)
