"""Linear probes of position in vectors: nearest class mean, ridge regression and similarity by distance."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.stats.permutation_tests import ranks

# largest number of rows that ridge regression is fitted to
ROWS = 1024
# candidate penalties, relative to the mean eigenvalue of the Gram matrix
PENALTIES = tuple(10.0**power for power in range(-4, 5))


def nearest_mean_accuracy(x: Float[Tensor, "texts places width"]) -> Float[Tensor, "texts"]:
    """Accuracy of classifying positions by the nearest class mean, with means over the other texts."""
    wide = x.double()
    total, count, found = wide.sum(0), len(wide), []
    for own in wide:
        means = (total - own) / (count - 1)
        # |x - m|^2 without |x|^2, which is the same for all means
        apart = means.square().sum(1) - 2 * own @ means.T
        found.append((apart.argmin(1) == torch.arange(len(own))).double().mean())
    return torch.stack(found)


def ridge_r2(
    x: Float[Tensor, "texts places width"], targets: Float[Tensor, "texts places"], *, squares: bool = False
) -> Float[Tensor, "texts"]:
    """R^2 of ridge regression on each text, fitted to the other half of the texts (two-fold cross-validation).

        R^2 = 1 - |y - y^|^2 / |y - mean y|^2,    the denominator averaged over the texts of a half

    The penalty is selected by cross-validation between two halves of the training texts. Rows of one text are
    correlated, so that leaving out single rows would select too small a penalty.

    Args:
        x: vectors.
        targets: a number for each vector.
        squares: whether to add the squares of all columns as features: the norm of an average over ever more tokens
            shrinks with the position, which is not a linear function of the vector.
    """
    count, step = len(x), max(1, -(-(len(x) // 2 + 1) * x.shape[1] // ROWS))
    wide, wanted = x[:, ::step].double(), targets[:, ::step].double()
    found = torch.empty(count, dtype=torch.float64)
    for turn in range(2):
        known = torch.arange(count) % 2 == turn
        features = _features(wide, wide[known], squares)
        seen, told = features[known], wanted[known]
        guess = _fitted(seen, told, features[~known], [_strength(seen, told)])[0]
        spread = (wanted[~known] - wanted[known].mean()).square().sum(1).mean()
        found[~known] = 1 - (wanted[~known] - guess).square().sum(1) / spread
    return found


def similarity_by_distance(
    x: Float[Tensor, "texts places width"], places: Float[Tensor, "places"]
) -> Float[ndarray, "texts"]:
    """Rank correlation of dissimilarity and distance of the vectors of each text.

    Spearman's correlation of -cos(x_i, x_j) and |i - j| over the pairs of each text; 0: unrelated.

    Source: Zuo et al. 2025, https://arxiv.org/abs/2501.00073
    """
    rows, columns = np.triu_indices(x.shape[1], 1)
    apart = _level(ranks((places[rows] - places[columns]).abs().double().numpy()))
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    found = [float(_level(ranks(-(own @ own.T).numpy()[rows, columns].round(12))) @ apart) for own in unit]
    return np.array(found)


def _features(x: Tensor, known: Tensor, squares: bool) -> Tensor:
    """Standardise columns by mean and standard deviation of the training texts; optionally append their squares."""
    mean, spread = known.mean((0, 1)), known.std((0, 1))
    even = (x - mean) / torch.where(spread > 0, spread, 1.0)
    return torch.cat([even, even.square() - 1], -1) if squares else even


def _strength(x: Float[Tensor, "texts rows columns"], y: Float[Tensor, "texts rows"]) -> float:
    """Select the penalty with the smallest squared error in two-fold cross-validation over texts."""
    errors = torch.zeros(len(PENALTIES), dtype=torch.float64)
    if len(x) < 2:
        return PENALTIES[-1]
    for turn in range(2):
        known = torch.arange(len(x)) % 2 == turn
        guesses = _fitted(x[known], y[known], x[~known], list(PENALTIES))
        errors += torch.stack([(y[~known] - guess).square().sum() for guess in guesses])
    return PENALTIES[int(errors.argmin())]


def _fitted(x: Tensor, y: Tensor, others: Tensor, strengths: list[float]) -> list[Tensor]:
    """Ridge predictions for other vectors at each penalty, in the dual form: columns may outnumber rows."""
    x, y = x.flatten(0, 1), y.flatten()
    mean = y.mean()
    values, vectors = torch.linalg.eigh(x @ x.T)
    values, turned = values.clamp(min=0), vectors.T @ (y - mean)
    across = others @ (x.T @ vectors)
    found = []
    for strength in strengths:
        damped = turned / (values + strength * values.mean()).clamp(min=1e-300)
        found.append(across @ damped + mean)
    return found


def _level(values: ndarray) -> ndarray:
    centred = values - values.mean()
    length = float(np.linalg.norm(centred))
    return centred / length if length > 0 else centred
