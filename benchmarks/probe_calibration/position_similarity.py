"""Cells of the probe position_similarity: random tables, unrelated distances, and swaps that mean nothing."""

import numpy as np
import torch

from benchmarks.probe_calibration._cell import Cell, Outcome, Reading
from ordinate.core.progress import ignore
from ordinate.ops.stats.permutation_tests import mantel_test
from ordinate.probing.measures.formatting import mean_estimate
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.position_distances import closest_pair, null_closest_pair, pairwise_distances
from ordinate.probing.measures.position_swaps import swap_positions
from ordinate.probing.measures.samples import ForwardBudget, intervention_sample
from ordinate.probing.measures.subspace_ablation import excess_over_controls
from ordinate.probing.probes.position_similarity import PositionSimilarity
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

PLACES, WIDTH, TEXTS = 32, 16, 12


def random_table(seed: int) -> Outcome:
    """A table of independent normal numbers, and a second one whose distances have nothing to do with its own."""
    draw = torch.Generator().manual_seed(10**6 + seed)
    one, other = (pairwise_distances(torch.randn(PLACES, WIDTH, generator=draw)) for _ in range(2))
    _, low, high = null_closest_pair((PLACES, WIDTH), seed)
    closest, test = closest_pair(one)[0], mantel_test(one, other, seed)
    return Outcome(false={
        "the closest pair is closer than by chance": closest < low,
        "the closest pair is farther than by chance": closest > high,
        "its distances correlate with others (Mantel)": test.p <= 0.05,
    })  # fmt: skip


def swaps_of_random_positions(seed: int) -> Outcome:
    """A random table: the way to another position is a direction like any other."""
    subject = AnalyticModel("learned", head=False, width=WIDTH, seed=seed)
    chosen = intervention_sample(subject.info, random_sequences(TEXTS, PLACES, seed=seed), ForwardBudget(9))
    scale = metric_for(subject, chosen, seed)
    harm = swap_positions(scale, subject.position_table(PLACES), seed, ignore)
    if harm.control_effects is None:
        raise ValueError("positions must be swappable; got no effects; use a model with position embeddings")
    steps = np.array(harm.displacements) - np.mean(harm.displacements)
    weights = steps / float((steps**2).sum())
    near = excess_over_controls("", harm.swap_effects[:, 0], list(harm.control_effects[..., 0]), "")
    slope = excess_over_controls("", harm.swap_effects @ weights, list(harm.control_effects @ weights), "")
    return Outcome({
        "adjacent positions swapped, minus control": Reading.of(near, 0.0),
        "increase per unit of distance, minus control": Reading.of(slope, 0.0),
    })  # fmt: skip


def swaps_of_one_model(seed: int) -> Outcome:
    """The same model on other texts: coverage of the expected effect of swaps."""
    subject = AnalyticModel("rope", head=False, width=WIDTH, seed=1)
    chosen = intervention_sample(subject.info, random_sequences(TEXTS, PLACES, seed=seed), ForwardBudget(9))
    harm = swap_positions(metric_for(subject, chosen, seed), None, seed, ignore)
    return Outcome({
        f"positions swapped at offset {offset}": Reading.of(mean_estimate("", values, seed, ""))
        for offset, values in zip(harm.offsets, harm.swap_effects.T, strict=True)
    })  # fmt: skip


def graded(seed: int) -> Outcome:
    """Whole answers: of a model without positions, and of one in which two distant positions are equal."""
    texts = random_sequences(TEXTS, PLACES, seed=seed)
    blind = PositionSimilarity().measure(AnalyticModel("none", width=WIDTH, seed=seed), texts, seed)
    subject = AnalyticModel("learned", head=False, width=WIDTH, seed=seed)
    own = PositionSimilarity().measure(subject, texts, seed)
    subject.table[20] = subject.table[7]
    same = PositionSimilarity().measure(subject, texts, seed)
    false = {
        "of NoPE, anything is told": blind.grade != "cannot be told",
        "a random table has positions too close": own.grade == "yes",
    }
    return Outcome(false=false, true={"two equal positions are found": same.grade == "yes"})


CELLS = (
    Cell(f"a random table: {PLACES} positions, width {WIDTH}", random_table),
    Cell(f"a random table, swaps: {TEXTS} texts of {PLACES} tokens", swaps_of_random_positions),
    Cell(f"one model with rope: {TEXTS} texts of {PLACES} tokens", swaps_of_one_model),
    Cell(f"whole answers: {TEXTS} texts of {PLACES} tokens", graded),
)
