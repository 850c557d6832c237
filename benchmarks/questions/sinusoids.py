"""The sinusoidal matrix: odd widths, short texts, sines without cosines; and the reach of ALiBi."""

import torch
from torch import Tensor

from benchmarks.questions._number import Numbers, exact
from ordinate import Geometry
from ordinate.ops.sinusoids import sinusoids
from ordinate.schemes import Alibi

BASE, WIDTH, SHORT, ROWS, HEADS = 1e4, 512, 64, 512, 8


def measure(quick: bool) -> Numbers:
    """Return numbers of the matrix; all are computed, none is sampled."""
    found: Numbers = {}
    for width in (64, 65):
        rows = matrix(ROWS, width)
        found[f"smallest distance of two of {ROWS} rows, width {width}"] = exact(
            float(torch.cdist(rows, rows).fill_diagonal_(torch.inf).min())
        )
    short = matrix(SHORT, WIDTH)
    power = torch.linalg.svdvals(short - short.mean(0)).square().cumsum(0)
    found[f"directions that hold 99 % of the variance of {SHORT} rows, width {WIDTH}"] = exact(
        int((power < 0.99 * power[-1]).sum()) + 1, "of 512"
    )
    pairs = matrix(ROWS, 64)
    for name, rows in (("sines and cosines", pairs), ("sines alone", pairs[:, ::2])):
        found[f"error of the best linear shift by 16, {name}"] = exact(shift_error(rows, 16), "of its norm")
    weights = torch.softmax(Alibi(heads=HEADS).bias(Geometry.causal(8192))[0, :, -1].double(), -1).flip(-1)
    reach = (weights.cumsum(-1) < 0.95).sum(-1) + 1
    for name, head in (("steepest", 0), ("flattest", -1)):
        found[f"tokens that have 95 % of the weight at equal scores, {name} of {HEADS} heads"] = exact(
            int(reach[head]), "tokens"
        )
    return found


def matrix(rows: int, width: int) -> Tensor:
    """The matrix of Vaswani et al."""
    return sinusoids(torch.arange(rows)[None, :, None], width, theta=BASE, form="vaswani", odd="paper")[0]


def shift_error(rows: Tensor, offset: int) -> float:
    """Relative error of the linear map that takes row p to row p + offset as well as any can."""
    before, after = rows[:-offset].double(), rows[offset:].double()
    linear = torch.linalg.lstsq(before, after, driver="gelsd").solution
    return float((before @ linear - after).norm() / after.norm())
