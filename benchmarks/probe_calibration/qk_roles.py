"""Cells of the probe qk_roles: random heads, known symmetric shares, grouped queries, and one model on many texts."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.probe_calibration._cell import DEAR_DRAWS, Cell, Outcome, Reading
from ordinate.ops.symmetry import positive_share, symmetry
from ordinate.probing.activations.intervention import InterventionAdapter
from ordinate.probing.measures.formatting import mean_estimate
from ordinate.probing.measures.perturbation_loss import metric_for
from ordinate.probing.measures.qk_interventions import RandomlyRotatedQueries, SwappedQK, score_symmetry
from ordinate.probing.measures.qk_symmetry import QKSymmetry, measure_qk_symmetry
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.probes.qk_roles import QKRoles
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

WIDTH, HEADS, LAYERS, TEXTS, LENGTH = 32, 4, 2, 12, 24
LEVEL = 0.05


def measured(subject: AnalyticModel, seed: int) -> QKSymmetry:
    """Symmetry of the heads of a model."""
    chosen = subsample(subject.info, random_sequences(2, 12, seed=seed), ForwardBudget(1))
    found = measure_qk_symmetry(subject, chosen, seed).value
    if found is None:
        raise ValueError("the model must have projections; got none; use AnalyticModel")
    return found


def random_heads(seed: int) -> Outcome:
    """Independent queries and keys."""
    found = measured(AnalyticModel("none", heads=HEADS, layers=LAYERS, width=WIDTH, seed=seed), seed)
    exchangeable = found.exchangeable
    middle = float(np.median(found.symmetry))
    return Outcome(
        {"the null interval holds the median head": Reading(middle, *found.null_interval, middle)},
        false={
            "a head is more or less symmetric than chance": bool((found.adjusted_p <= LEVEL).any()),
            "queries and keys of a head could be exchanged": exchangeable is None or bool(exchangeable.any()),
        },
    )


def parts(seed: int, share: float) -> tuple[Float[Tensor, "h width d"], Float[Tensor, "g width d"]]:
    """Queries and keys of 4 heads with this symmetric share of their squared norm; pairs of heads share their keys.

    Keys are the identity, so that M is the query matrix itself.
    """
    draw = torch.Generator().manual_seed(seed)
    m = torch.randn(HEADS, WIDTH, WIDTH, generator=draw, dtype=torch.float64)
    even, odd = ((part / part.norm(dim=(1, 2), keepdim=True)) for part in ((m + m.mT) / 2, (m - m.mT) / 2))
    keys = torch.linalg.qr(torch.randn(HEADS // 2, WIDTH, WIDTH, generator=draw, dtype=torch.float64)).Q
    whole = share**0.5 * even + (1 - share) ** 0.5 * odd
    # W_q W_k^T = M, as the keys are orthogonal
    return whole @ keys.repeat_interleave(2, 0), keys


def known_parts(seed: int) -> Outcome:
    """A known symmetric share, under grouped queries; and heads whose keys are their queries, or the negative."""
    share = float(torch.rand((), generator=torch.Generator().manual_seed(seed)))
    query, key = parts(seed, share)
    s = symmetry(query, key)
    return Outcome(true={
        "the symmetric part is the planted one": bool(((1 + s) / 2 - share).abs().max() < 1e-9),
        "W_k = W_q is symmetric and positive": bool((symmetry(query, query) > 1 - 1e-9).all()
                                                   and (positive_share(query, query) > 1 - 1e-9).all()),
        "W_k = -W_q is symmetric and not positive": bool((symmetry(query, -query) > 1 - 1e-9).all()
                                                        and (positive_share(query, -query) < 1e-9).all()),
    })  # fmt: skip


def one_model(seed: int) -> Outcome:
    """The same model on other texts: coverage of expected values."""
    subject = AnalyticModel("learned", causal=False, head=False, width=WIDTH, heads=HEADS, layers=1, seed=1)
    chosen = subsample(subject.info, random_sequences(TEXTS, LENGTH, seed=seed), ForwardBudget(1))
    scale = metric_for(subject, chosen, seed)
    found = {"symmetry of scores on tokens": score_symmetry(subject, chosen).numpy().mean((1, 2))}
    for name, watch in (
        ("increase, queries replaced by keys", SwappedQK(queries=True, keys=False)),
        ("increase, queries and keys swapped", SwappedQK(queries=True, keys=True)),
        ("increase, queries randomly rotated", RandomlyRotatedQueries(0)),
    ):
        scale.subject = InterventionAdapter(subject, watch)
        found[name] = scale.per_text()
    return Outcome({name: Reading.of(mean_estimate("", values, seed, "")) for name, values in found.items()})


def graded(seed: int) -> Outcome:
    """Whole answers: of a model with one matrix, of one with its negative, and of a random one."""
    texts, answers = random_sequences(TEXTS, LENGTH, seed=seed), {}
    for name, sign in (("tied", 1.0), ("negative", -1.0), ("random", 0.0)):
        subject = AnalyticModel("rope", head=False, width=WIDTH, heads=HEADS, layers=1, seed=seed)
        for own in subject.weights:
            own.key[:] = sign * own.query if sign else own.key
        answers[name] = QKRoles().measure(subject, texts, seed)
    counts = {name: {one.name: one.value for one in found.estimates} for name, found in answers.items()}
    merged = "heads whose queries and keys could be one matrix"
    return Outcome(
        false={
            "queries and keys differ, of a model with one matrix": answers["tied"].grade != "no",
            "W_k = -W_q could be one matrix": counts["negative"][merged] > 0,
        },
        true={
            "one matrix is found in all heads": counts["tied"][merged] == HEADS,
            "queries and keys of a random model differ": answers["random"].grade in ("yes", "weakly"),
        },
    )


CELLS = (
    Cell(f"random heads: {LAYERS} x {HEADS}, width {WIDTH}", random_heads),
    Cell(f"known symmetric shares, {HEADS} query heads on {HEADS // 2} key heads", known_parts),
    Cell(f"one model: {TEXTS} texts of {LENGTH} tokens", one_model),
    Cell(f"whole answers under rope: {TEXTS} texts of {LENGTH} tokens, {HEADS} heads", graded, DEAR_DRAWS),
)
