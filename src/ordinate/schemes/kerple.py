"""KERPLE: kernelised relative position bias (Chi et al., 2022)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Queries
from ordinate.core.tensors import in_float64, on_device
from ordinate.ops.distance import distance
from ordinate.ops.log_bias import LogBias, one_line
from ordinate.schemes._scheme import Scheme

KerpleForm = Literal["log", "power", "log_power"]
MIN_PARAMETER, MAX_POWER = 0.01, 2.0


class Kerple(Scheme):
    """KERPLE: add a bias to the scores that falls with the logarithm or a power of the distance.

        log:        bias(h, i, j) = -p_h * log(1 + a_h * d)                   d = |p_i - p_j|
        power:      bias(h, i, j) = -a_h * d^p_h
        log_power:  bias(h, i, j) = -p_h * log(1 + a_h * d^q_h)
        weighted:   q.k is multiplied by exp(-b_h * d^r_h) as well

    Each head trains two parameters. The logarithmic bias falls more slowly with distance than the linear bias of
    ALiBi.

    Enters at: scores.
    Args:
        heads: heads of the model.
        form: `log` or `power`, the kernels of the paper; `log_power` has three parameters, as in NeMo.
        weighted: also multiply the scores by a factor that decays with distance, an option of the published code.
    Raises:
        ValueError: an unknown form.
    Source: Chi et al. 2022, KERPLE, https://arxiv.org/abs/2205.09921; bounds, initial values and the weighting
        from its published code: p, q and r drawn from (0, 2), a and b in (0, 1), all kept at 0.01 or more and the
        powers of the distance at 2 or less.
    Departs: the published code writes bounded values back into the parameters at each use; here the parameters are
        not modified, and gradients pass the bound unchanged. NeMo keeps a at 0, which makes its bias 0.
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

    def __init__(self, *, heads: int, form: KerpleForm = "log", weighted: bool = False) -> None:
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
        """Hooks in use: `score` only if `weighted`."""
        return ("score", "bias") if self.weighted else ("bias",)

    def score(self, q: Queries, k: Keys, where: Geometry) -> Bias | None:
        """Return q.k multiplied by the distance-dependent factor, if `weighted`."""
        if not self.weighted:
            return None
        wide = torch.promote_types(q.dtype, torch.float32)
        far = distance(where.offset, dtype=torch.float64)[:, None]
        decay = torch.exp(-_bounded(self.b) * _power(far, _bounded(self.r, MAX_POWER)))
        return q.to(wide) @ k.to(wide).mT * on_device(decay, wide, q.device)

    def bias(self, where: Geometry) -> Bias:
        # float64: in float32, pow may round differently in a block than in the whole matrix
        far = distance(where.offset, dtype=torch.float64)[:, None]
        if self.form == "power":
            penalty = _bounded(self.a) * _power(far, _bounded(self.p, MAX_POWER))
        else:
            power = _power(far, _bounded(self.q, MAX_POWER)) if self.form == "log_power" else far
            penalty = _bounded(self.p) * torch.log1p(_bounded(self.a) * power)
        return -on_device(penalty, torch.promote_types(self.p.dtype, torch.float32), where.q_pos.device)

    def log_bias(self, where: Geometry) -> LogBias | None:
        if self.form != "log":
            return None
        rates, slopes = (_bounded(number).flatten() for number in (self.a, self.p))
        return LogBias(rates, rates.new_ones(1, where.shape[0]), one_line(-slopes))


def _power(far: Tensor, exponent: Float[Tensor, "h 1 1"]) -> Tensor:
    """Return far^exponent; at distance 0 it is constant, where PyTorch's second derivative, with log 0, is NaN."""
    near = far == 0
    return (far.masked_fill(near, 1.0) ** exponent).masked_fill(near, 0.0)


def _bounded(number: Float[Tensor, " h"], most: float | None = None) -> Float[Tensor, "h 1 1"]:
    """Clamp a parameter of each head with a straight-through gradient, as in the published code."""
    wide = in_float64(number)[:, None, None]
    return wide + (wide.clamp(MIN_PARAMETER, most) - wide).detach()
