"""What further seeds of the leading schemes are worth, by simulation: how often the right one is recommended.

Losses are drawn as in `benchmarks/calibration.py`. One model may be better than all others, which are equal. Compared
are three ways to spend training runs: one seed of every model; that, and a second seed of the best two; two seeds of
every model. A recommendation is a decision that names one model: as in the report, significantly better than every
other over seeds, or with every common seed by itself.
"""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration import COMPONENTS, QUICK_DRAWS, SIZE_SETS, STEP, Cell, judge, losses, significant
from benchmarks.harness.saving import Unfinished, save
from ordinate.evaluation.comparison import Measurements, compare
from ordinate.evaluation.statistics import CONFIDENCE
from ordinate.study.leaders import LEADERS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DRAWS = 10_000
# how much better the first model is, in standard deviations of the difference between two trained models
ADVANTAGES = (0.0, 1.0, 2.0, 4.0)
WAYS = ("one seed", "leaders", "two seeds")


def recommended(amounts: Floats, sizes: Floats, second: Flags, error: float = 1 - CONFIDENCE) -> Floats:
    """Return the index of the model that is recommended in each draw; -1 where none is.

    Args:
        amounts: draws x models x 2 seeds x documents.
        sizes: size of each document.
        second: whether a model has its second seed, draws x models.
        error: largest p-value that is significant.
    """
    models = amounts.shape[1]
    pairs = np.array(list(itertools.combinations(range(models), 2)))
    both = second[:, pairs].all(-1)
    (first, p_first), (other, p_other), (value, p) = (
        judge(amounts[:, :, seeds], sizes) for seeds in (slice(1), slice(1, 2), slice(2))
    )
    # as `Comparison`: two common seeds are judged together, and each by itself with Bonferroni's correction
    sure = significant(np.where(both, p, p_first), error)
    each = (np.sign(first) == np.sign(other)) & (np.maximum(p_first, p_other) * len(pairs) < error)
    ahead = np.where(both, sure | each, sure)
    ratios = amounts.sum(-1) / sizes.sum()
    best = np.where(second, ratios.mean(-1), ratios[..., 0]).argmin(1)
    concerned = (pairs[None] == best[:, None, None]).any(-1)
    lower = np.where(pairs[None, :, 0] == best[:, None], 1, -1) * np.where(both, value, first) < 0
    alone = (ahead & lower | ~concerned).all(1)
    return np.where(alone, best, -1)


def has_second(amounts: Floats, sizes: Floats, way: str) -> Flags:
    """Whether each model of each draw gets a second seed: draws x models."""
    draws, models = amounts.shape[:2]
    if way != "leaders":
        return np.full((draws, models), way == "two seeds")
    order = (amounts[:, :, 0].sum(-1) / sizes.sum()).argsort(1)
    found = np.zeros((draws, models), bool)
    np.put_along_axis(found, order[:, :LEADERS], True, 1)
    return found


def measure(cell: Cell, advantage: float, draws: int) -> dict[str, Any]:
    """Return how often the first model, and how often another, is recommended in each way."""
    random, named = np.random.default_rng(0), {way: [0, 0] for way in WAYS}
    for _ in range(SIZE_SETS):
        sizes = np.exp(random.normal(0, 1, cell.documents))
        amounts = losses(random, cell, sizes, draws // SIZE_SETS)
        ratios = amounts[:, :2, 0].sum(-1) / sizes.sum()
        amounts[:, 0] -= advantage * (ratios[:, 0] - ratios[:, 1]).std() * sizes
        for way, counts in named.items():
            found = recommended(amounts, sizes, has_second(amounts, sizes, way))
            counts[0] += int((found == 0).sum())
            counts[1] += int((found > 0).sum())
    return {way: {"first": first / draws, "other": other / draws} for way, (first, other) in named.items()}


def check(cell: Cell) -> None:
    """Compare recommendations with those by the library's comparisons, on a few draws."""
    random = np.random.default_rng(1)
    sizes = np.exp(random.normal(0, 1, cell.documents))
    amounts = losses(random, cell, sizes, 20)
    amounts[:, 0] -= 3 * (amounts[:, :2, 0].sum(-1) / sizes.sum()).std() * sizes
    for way in WAYS:
        second = has_second(amounts, sizes, way)
        # p-values here are rounded up, by a factor of STEP at most
        found = [recommended(amounts, sizes, second, (1 - CONFIDENCE) * by) for by in (1, STEP)]
        for draw in range(len(amounts)):
            seeds = [(0, 1) if more else (0,) for more in second[draw]]
            tables = {
                str(model): Measurements(own, amounts[draw, model][list(own)], sizes)
                for model, own in enumerate(seeds)
            }
            compared = compare(tables)
            names = sorted(tables, key=lambda name: tables[name].amounts.sum(-1).mean())
            pairs = [compared[other, names[0]] for other in names[1:]]
            alone = all((one.consistent or one.significant) and one.difference > 0 for one in pairs)
            assert (int(names[0]) if alone else -1) in [one[draw] for one in found], (way, draw)


def main(save_it: bool, quick: bool = False) -> None:
    """Simulate every setting, and print what each way recommends."""
    draws, kept = QUICK_DRAWS if quick else DRAWS, Unfinished("leaders-quick" if quick else "leaders")
    settings = list(itertools.product((4, 8), (20, 60), COMPONENTS, ADVANTAGES))
    rows: list[dict[str, Any]] = []
    for models, documents, component, advantage in settings:
        cell = Cell(models, 2, documents, "unequal", "equal", "normal", component)
        row = kept.get(cell, advantage)
        if row is None:
            check(cell)
            row = vars(cell) | {"advantage": advantage, "recommended": measure(cell, advantage, draws)}
            kept.put(cell, advantage, rows=row)
        rows.append(row)
        shares = {
            way: [round(100 * share, 1) for share in counts.values()] for way, counts in row["recommended"].items()
        }
        print(
            f"{len(rows)}/{len(settings)} {models} models, {documents} documents, {component}, {advantage}: {shares}"
        )
    if save_it:
        print(save("leaders", {"draws": draws, "cells": rows}))
        kept.forget()
