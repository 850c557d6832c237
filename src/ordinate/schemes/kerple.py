"""A trained penalty that grows with the logarithm or a power of the distance."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.distance import distance
from ordinate.scheme import Scheme
from ordinate.shapes import Bias, Keys, Queries

Form = Literal["log", "power", "log_power"]
LOWEST, STEEPEST = 0.01, 2.0


class Kerple(Scheme):
    """Lower each score by a trained function of the distance, which flattens out.

        log:        bias(h, i, j) = -p_h * log(1 + a_h * d)                   d = |p_i - p_j|
        power:      bias(h, i, j) = -a_h * d^p_h
        log_power:  bias(h, i, j) = -p_h * log(1 + a_h * d^q_h)
        weighted:   q.k is multiplied by exp(-b_h * d^r_h) as well

    Each head trains two numbers. With the logarithm a key twice as far loses only a little more, so far tokens fade
    more slowly than by a slope.

    Enters at: scores.
    Args:
        heads: heads of the model.
        form: `log` or `power`, the kernels of the paper; `log_power` is the form with three numbers, which NeMo has.
        weighted: multiply the scores too, as the published code can.
    Raises:
        ValueError: an unknown form.
    Source: Chi et al. 2022, KERPLE, https://arxiv.org/abs/2205.09921; bounds, births and the weighting
        from its published code: p, q and r born in (0, 2), a and b in (0, 1), all kept at 0.01 or more and the powers
        of the distance at 2 or less.
    Departs: the published code writes bounded numbers back into the parameters at each use; here the parameters are
        left alone, and the gradient at the bound passes on to them. NeMo holds a at 0, which makes its bias 0.
    """

    shift_invariant = True
    citation = """@inproceedings{chi2022kerple,
  title = {{KERPLE}: Kernelized Relative Positional Embedding for Length Extrapolation},
  author = {Chi, Ta-Chung and Fan, Ting-Han and Ramadge, Peter J. and Rudnicky, Alexander I.},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {35},
  year = {2022},
  url = {https://arxiv.org/abs/2205.09921}
}"""

    def __init__(self, *, heads: int, form: Form = "log", weighted: bool = False) -> None:
        super().__init__()
        need_positive("heads", heads)
        need_known("form of kerple", form, ("log", "power", "log_power"))
        self.form, self.weighted = form, weighted
        self.p = nn.Parameter(2 * torch.rand(heads))
        self.a = nn.Parameter(torch.rand(heads))
        if form == "log_power":
            self.q = nn.Parameter(2 * torch.rand(heads))
        if weighted:
            self.r = nn.Parameter(2 * torch.rand(heads))
            self.b = nn.Parameter(torch.rand(heads))

    @property
    def hooks(self) -> tuple[str, ...]:
        """Scores are multiplied only where `weighted`."""
        return ("score", "bias") if self.weighted else ("bias",)

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Let q.k fade with the distance, where `weighted`."""
        if not self.weighted:
            return None
        wide = torch.promote_types(q.dtype, torch.float32)
        apart = distance(where.offset, dtype=torch.float64)[:, None]
        fading = torch.exp(-_bounded(self.b) * apart ** _bounded(self.r, STEEPEST))
        return q.to(wide) @ k.to(wide).mT * fading.to(wide)

    def bias(self, where: Geometry) -> Bias:
        """The penalty for each head, query and key."""
        # a power in float32 rounds differently in a block than in the whole
        apart = distance(where.offset, dtype=torch.float64)[:, None]
        if self.form == "power":
            penalty = _bounded(self.a) * apart ** _bounded(self.p, STEEPEST)
        else:
            grown = apart ** _bounded(self.q, STEEPEST) if self.form == "log_power" else apart
            penalty = _bounded(self.p) * torch.log1p(_bounded(self.a) * grown)
        return -penalty.to(torch.promote_types(self.p.dtype, torch.float32))


def _bounded(number: Float[Tensor, " h"], most: float | None = None) -> Float[Tensor, "h 1 1"]:
    """One number for each head, within its bounds; the gradient passes through, as in the published code."""
    wide = number.double()[:, None, None]
    return wide + (wide.clamp(LOWEST, most) - wide).detach()
