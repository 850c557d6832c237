"""Weights of a model in 8 bits a number, with a scale for each row."""

import copy
from typing import cast

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.core.tensors import in_float64

LARGEST = 127
# a matrix of fewer columns stays in float32: it has few numbers, and a scale a row would be as large as they are
NARROWEST = 32


def round_rows(
    weight: Float[Tensor, "rows columns"],
) -> tuple[Int8[Tensor, "rows columns"], Float[Tensor, "rows"]]:
    """Round a matrix to 8 bits, symmetrically, with a scale for each row.

        s = max|w| / 127,   q = round(w / s),   w' = float32(q * s)

    Returns:
        q and s; a row of zeros has the scale 0.
    """
    scales = weight.detach().float().abs().amax(1) / LARGEST
    # float64, so that no quotient is rounded twice
    steps = in_float64(weight.detach().float()) / in_float64(scales)[:, None].where(scales[:, None] > 0, 1)
    return steps.round().to(torch.int8), scales


def restore_rows(
    rounded: Int8[Tensor, "rows columns"], scales: Float[Tensor, "rows"]
) -> Float[Tensor, "rows columns"]:
    """Return the float32 weights that rounded ones stand for."""
    return rounded.float() * scales[:, None]


def is_rounded(weight: Tensor) -> bool:
    """Whether a parameter is rounded: a matrix of 32 columns or more."""
    return weight.ndim == 2 and weight.shape[1] >= NARROWEST


def rounded_copy(model: nn.Module) -> nn.Module:
    """Return a float32 copy of a model whose weights are those that the page has.

    Raises:
        ValueError: a weight is not finite.
    """
    other = copy.deepcopy(model).float()
    with torch.no_grad():
        for name, weight in other.named_parameters():
            came, remedy = f"{name} has others", "train it again, or give another model"
            need(bool(weight.isfinite().all()), "weights must be finite numbers", came, remedy)
            if is_rounded(weight):
                weight.copy_(restore_rows(*round_rows(weight)))
    return cast(nn.Module, other)
