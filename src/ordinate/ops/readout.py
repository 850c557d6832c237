"""What can be read from vectors without training: by nearest means, by ridge regression, by their likeness."""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.ops.permutation import ranks

# ridge is fitted to no more rows than this
ROWS = 1024
# how strong it may be, beside the mean of the eigenvalues
STRENGTHS = tuple(10.0**power for power in range(-4, 5))


def nearest_mean(x: Float[Tensor, "texts places width"]) -> Float[Tensor, "texts"]:
    """How often a vector's place is that of the nearest mean, the means being those of the other texts."""
    wide = x.double()
    total, count, found = wide.sum(0), len(wide), []
    for own in wide:
        means = (total - own) / (count - 1)
        # |x - m|^2 up to what is the same for all m
        apart = means.square().sum(1) - 2 * own @ means.T
        found.append((apart.argmin(1) == torch.arange(len(own))).double().mean())
    return torch.stack(found)


def ridge(
    x: Float[Tensor, "texts places width"], targets: Float[Tensor, "texts places"], *, squares: bool = False
) -> Float[Tensor, "texts"]:
    """How much of the targets of each text ridge regression tells that was fitted to the other half of the texts.

        R^2 = 1 - |y - y^|^2 / |y - mean y|^2,    below the line the mean of the texts

    The strength is chosen among the texts that it is fitted to: one half of them says what serves the other best.
    Rows of one text are alike, so that to leave out single rows would choose too little.

    Args:
        x: vectors.
        targets: a number for each.
        squares: whether the squares of all columns may be used too: where the average of ever more tokens shrinks,
            a place is told by sizes, which are no linear function.
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


def likeness(x: Float[Tensor, "texts places width"], places: Float[Tensor, "places"]) -> Float[ndarray, "texts"]:
    """How well the likeness of two vectors of a text tells how far apart they stand.

    Spearman's correlation of -cos(x_i, x_j) and |i - j| over the pairs of each text; 0: not at all.

    Source: Zuo et al. 2025, https://arxiv.org/abs/2501.00073
    """
    rows, columns = np.triu_indices(x.shape[1], 1)
    apart = _level(ranks((places[rows] - places[columns]).abs().double().numpy()))
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    found = [float(_level(ranks(-(own @ own.T).numpy()[rows, columns].round(12))) @ apart) for own in unit]
    return np.array(found)


def _features(x: Tensor, known: Tensor, squares: bool) -> Tensor:
    """Columns of mean 0 and spread 1 among the known, and their squares."""
    mean, spread = known.mean((0, 1)), known.std((0, 1))
    even = (x - mean) / torch.where(spread > 0, spread, 1.0)
    return torch.cat([even, even.square() - 1], -1) if squares else even


def _strength(x: Float[Tensor, "texts rows columns"], y: Float[Tensor, "texts rows"]) -> float:
    """What serves each half of the texts best, fitted to the other."""
    errors = torch.zeros(len(STRENGTHS), dtype=torch.float64)
    if len(x) < 2:
        return STRENGTHS[-1]
    for turn in range(2):
        known = torch.arange(len(x)) % 2 == turn
        guesses = _fitted(x[known], y[known], x[~known], list(STRENGTHS))
        errors += torch.stack([(y[~known] - guess).square().sum() for guess in guesses])
    return STRENGTHS[int(errors.argmin())]


def _fitted(x: Tensor, y: Tensor, others: Tensor, strengths: list[float]) -> list[Tensor]:
    """What ridge says of others at each strength, solved over rows: there may be more columns than rows."""
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
