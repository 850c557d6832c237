"""Wang & Chen 2020: position can be read from position embeddings."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.linalg import lstsq

from ordinate.core.finding import Estimate
from ordinate.ops.sinusoids import sinusoids
from ordinate.ops.stats.bootstrap import percentiles, student_quantile
from ordinate.probing._adapter import ModelAdapter
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

ROWS, WIDTH, FOLDS, PAIRS = 512, 768, 5, 512
# of pairs, and of the tables of each null; steps of Newton's method
DRAWS, NULL_DRAWS, STEPS = 50, 10, 12
# |w|^2 / 2 beside the sum of losses, as in the library that the authors use
PENALTY = 1.0

Table = Float[ndarray, "rows width"]


class WangChen(Replication):
    """Absolute and relative position, read linearly from sinusoidal position embeddings.

    Absolute: linear regression of the position on the embedding, five folds of shuffled rows, mean of |round(y) - p|.
    Relative: logistic regression of "b is after a" on the embeddings [p_a; p_b] of 512 random pairs, five folds.

    Source: Wang and Chen 2020, https://arxiv.org/abs/2010.04903, sections 3.1 and 3.2, and its repository.
    Departs: the relative error is the mean of 50 draws of pairs; one draw has a standard deviation of about 1 %.
    """

    paper = Paper(
        authors="Wang and Chen", year=2020, arxiv="2010.04903",
        title="What Do Position Embeddings Learn? An Empirical Study of Pre-Trained Language Model Positional "
        "Encoding",
    )  # fmt: skip
    order = 20
    claims = (
        Claim(
            name="absolute",
            text="The position is a linear function of the sinusoidal embedding.",
            tested="number",
            quantity=f"mean absolute error [tokens], {ROWS} rows of width {WIDTH}",
            side="equal",
            expected=0.0,
            size=0.5,
            null="tables of normal numbers",
            printed="0.0",
            checked=False,
        ),
        Claim(
            name="relative",
            text="Which of two positions is later can be read from their sinusoidal embeddings.",
            tested="number",
            quantity=f"error of the order [%], {PAIRS} random pairs",
            side="equal",
            expected=5.08,
            size=1.5,
            null="tables of normal numbers",
            printed="5.08 %",
            checked=False,
        ),
        Claim(
            name="not in the order of rows",
            text="The error of the order is lower than in a table that has no positions in it.",
            tested="sign",
            quantity=f"error of the order [%], {PAIRS} random pairs",
            side="below",
            size=10.0,
            null="the same sinusoids in random order",
        ),
        Claim(
            name="absolute in a table",
            text="The position is nearly a linear function of the rows of a learned table.",
            tested="sign",
            quantity="mean absolute error of the position over the number of rows, as many as were trained",
            side="below",
            size=0.1,
            null="the same rows in random order",
            printed="of 512 rows 34.1 in BERT, 6.06 in RoBERTa, of 1024 1.03 in GPT-2",
            checked=False,
            needs="model",
        ),
        Claim(
            name="order in a table",
            text="Which of two positions is later can be read from the rows of a learned table.",
            tested="sign",
            quantity=f"error of the order [%], {PAIRS} random pairs",
            side="below",
            size=10.0,
            null="the same rows in random order",
            printed="19.7 % in BERT, 7.2 % in RoBERTa, 1.56 % in GPT-2",
            checked=False,
            needs="model",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        rng = np.random.default_rng(seed)
        line = np.linspace(-1, 1, ROWS)[:, None] * rng.standard_normal((1, WIDTH))
        return (
            Control(name="absolute error on a table linear in the position", expected=0.0,
                    got=absolute_error(line, rng), tolerance=1e-6),
            Control(name="error of the order with labels that are coin flips", expected=50.0,
                    got=order_error(sinusoid_table(), rng, chance=True), tolerance=8.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        rng, table = np.random.default_rng(subject.seed), sinusoid_table()
        normal = [rng.standard_normal(table.shape) for _ in range(NULL_DRAWS)]
        mixed = [rng.permutation(table) for _ in range(NULL_DRAWS)]
        exact = [absolute_error(table, rng) for _ in range(NULL_DRAWS)]
        order = [order_error(table, rng) for _ in range(DRAWS)]
        found = {
            "absolute": _mean(exact, [absolute_error(own, rng) for own in normal], "tokens"),
            "relative": _mean(order, [order_error(own, rng) for own in normal], "%"),
            "not in the order of rows": _mean(order, [order_error(own, rng) for own in mixed], "%"),
        }
        learned = None if subject.model is None else learned_table(subject.model)
        return found if learned is None else found | _of_table(learned, rng)


def sinusoid_table() -> Table:
    """The sinusoidal position embeddings."""
    places = torch.arange(ROWS)[None, :, None]
    return sinusoids(places, WIDTH, theta=10_000.0, form="vaswani", odd="paper")[0].numpy()


def learned_table(model: ModelAdapter) -> Table | None:
    """Return the rows of a model's table of positions that it was trained on; None: it has none."""
    rows = model.trained_length or model.info.max_length
    if rows is None or model.info.position != "learned":
        return None
    return model.position_table(rows).detach().double().cpu().numpy()


def _of_table(table: Table, rng: np.random.Generator) -> dict[str, Estimate]:
    """Errors of a learned table, beside those of its rows in random order."""
    mixed = [rng.permutation(table) for _ in range(NULL_DRAWS)]
    exact = [[absolute_error(own, rng) / len(table) for own in rows] for rows in ([table] * NULL_DRAWS, mixed)]
    order = [order_error(table, rng) for _ in range(DRAWS)]
    return {
        "absolute in a table": _mean(exact[0], exact[1], ""),
        "order in a table": _mean(order, [order_error(own, rng) for own in mixed], "%"),
    }


def absolute_error(table: Table, rng: np.random.Generator) -> float:
    """Mean absolute error of the rounded position, predicted by least squares in five folds of shuffled rows."""
    errors = []
    for known, tested in _folds(len(table), rng):
        features = np.column_stack([table, np.ones(len(table))])
        weights = lstsq(features[known], known.astype(float), lapack_driver="gelsy")[0]
        errors.append(np.abs(np.round(features[tested] @ weights) - tested))
    return float(np.concatenate(errors).mean())


def order_error(table: Table, rng: np.random.Generator, *, chance: bool = False) -> float:
    """Error of predicting which of two positions is later, in five folds [%].

    Args:
        table: position embeddings.
        rng: draws the pairs and the folds.
        chance: whether labels are coin flips.
    """
    pairs = np.array([rng.choice(len(table), 2, replace=False) for _ in range(PAIRS)])
    features = np.concatenate([table[pairs[:, 0]], table[pairs[:, 1]]], 1)
    labels = np.where(rng.random(PAIRS) < 0.5 if chance else pairs[:, 1] > pairs[:, 0], 1.0, -1.0)
    products, wrong = features @ features.T, []
    for known, tested in _folds(PAIRS, rng):
        own, start = _logistic(products[np.ix_(known, known)], labels[known])
        wrong.append((products[np.ix_(tested, known)] @ own + start) * labels[tested] <= 0)
    return 100 * float(np.concatenate(wrong).mean())


def _logistic(products: ndarray, labels: ndarray) -> tuple[ndarray, float]:
    """Logistic regression by Newton's method in its dual form: weights are combinations of the rows.

    Each step solves the ridge regression of the working response with a bias that is not penalised.
    """
    count, scores, found = len(labels), np.zeros(len(labels)), np.zeros(len(labels) + 1)
    system = np.ones((count + 1, count + 1))
    system[-1, -1] = 0.0
    for _ in range(STEPS):
        # expit and its derivative; the margin is clipped where the derivative would underflow
        chance = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
        spread = chance * (1 - chance)
        system[:-1, :-1] = products + np.diag(PENALTY / spread)
        response = scores + ((labels + 1) / 2 - chance) / spread
        found = np.linalg.solve(system, np.append(response, 0.0))
        scores = products @ found[:-1] + found[-1]
    return found[:-1], float(found[-1])


def _folds(count: int, rng: np.random.Generator) -> list[tuple[ndarray, ndarray]]:
    parts = np.array_split(rng.permutation(count), FOLDS)
    return [(np.concatenate([*parts[:turn], *parts[turn + 1 :]]), parts[turn]) for turn in range(FOLDS)]


def _mean(values: Sequence[float], null: Sequence[float], unit: str) -> Estimate:
    """Mean over draws with its interval, beside the central 95 % of the null's draws."""
    value = float(np.mean(values))
    half = student_quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    low, high = percentiles(np.array(null))
    return Estimate(name="error", value=value, low=value - half, high=value + half, null=float(np.mean(null)),
                    null_low=float(low), null_high=float(high), unit=unit)  # fmt: skip
