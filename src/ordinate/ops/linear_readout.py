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


def nearest_mean_accuracy(x: Float[Tensor, "texts places width"]) -> Float[Tensor, "tested"]:
    """Accuracy of classifying positions by the nearest class mean, on every second text; the means are of the others.

    Tested texts share one classifier, in which none of them has taken part: given the classifier their accuracies are
    independent, and an interval over them covers its accuracy on new texts.
    """
    return held_out_accuracy(x[0::2], x[1::2])


def held_out_accuracy(
    known: Float[Tensor, "others places width"], x: Float[Tensor, "tested places width"]
) -> Float[Tensor, "tested"]:
    """Accuracy of classifying the positions of each text by the nearest class mean over the known texts."""
    means = known.double().mean(0)
    # |x - m|^2 without |x|^2, which is the same for all means
    apart = means.square().sum(1) - 2 * x.double() @ means.T
    return (apart.argmin(2) == torch.arange(x.shape[1])).double().mean(1)


def ridge_r2(
    x: Float[Tensor, "texts places width"], targets: Float[Tensor, "texts places"], *, squares: bool = False
) -> Float[Tensor, "tested"]:
    """R^2 of ridge regression on every second text, fitted to the others; the arguments are those of `held_out_r2`.

    Given the regression the values of the tested texts are independent, and an interval over them covers its R^2 on
    new texts.
    """
    return held_out_r2(x[0::2], targets[0::2], x[1::2], targets[1::2], squares=squares)


def held_out_r2(
    known: Float[Tensor, "others places width"],
    told: Float[Tensor, "others places"],
    x: Float[Tensor, "tested places width"],
    targets: Float[Tensor, "tested places"],
    *,
    squares: bool = False,
) -> Float[Tensor, "tested"]:
    """R^2 of ridge regression on each text, fitted to the known texts.

        R^2 = 1 - |y - y^|^2 / |y - mean y|^2,    the denominator averaged over the tested texts

    It is 0 if all targets are equal: there is nothing to distinguish.

    The penalty is selected by cross-validation between two halves of the known texts. Rows of one text are
    correlated, so that leaving out single rows would select too small a penalty.

    Args:
        known: vectors that are fitted to.
        told: a number for each of them.
        x: vectors that are tested.
        targets: a number for each of them.
        squares: whether to add the squares of all columns as features: the norm of an average over ever more tokens
            shrinks with the position, which is not a linear function of the vector.
    """
    step = max(1, -(-(len(known) + 1) * known.shape[1] // ROWS))
    known, told, x, targets = (one[:, ::step].double() for one in (known, told, x, targets))
    seen, features = _features(known, known, squares), _features(x, known, squares)
    guess = _fitted(seen, told, features, [_strength(seen, told)])[0]
    spread = (targets - told.mean()).square().sum(1).mean()
    unlike = bool((targets != told.flatten()[0]).any()) and spread > 0
    return 1 - (targets - guess).square().sum(1) / spread if unlike else torch.zeros(len(x), dtype=torch.float64)


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
