"""A penalty that grows with distance."""

import math

import torch

from ordinate.checks import need_positive
from ordinate.geometry import Geometry
from ordinate.scheme import Scheme
from ordinate.shapes import Bias


class Alibi(Scheme):
    """Lower each score by the distance times a slope that is fixed for each head.

        bias(h, i, j) = -slope_h * |p_i - p_j|,     slope_h = 2^(-8h/H),  h = 1 .. H

    Far tokens fade at a rate of each head's own, so lengths never seen in training change little.

    Enters at: scores.
    Args:
        heads: heads of the model, H. Where H is no power of two the paper's rule is used: the slopes of the power of
            two below, then every other slope of twice that power.
    Source: Press et al. 2022, Train Short, Test Long, section 3, https://arxiv.org/abs/2108.12409, slopes for any H
        from its published code.
    Departs: without a causal mask the same penalty is used on both sides (the symmetric form; the paper is causal).
    """

    shift_invariant = True
    citation = """@inproceedings{press2022train,
  title = {Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation},
  author = {Press, Ofir and Smith, Noah A. and Lewis, Mike},
  booktitle = {International Conference on Learning Representations},
  year = {2022},
  url = {https://arxiv.org/abs/2108.12409}
}"""

    def __init__(self, *, heads: int) -> None:
        super().__init__()
        need_positive("heads", heads)
        self.heads = heads

    @property
    def slopes(self) -> list[float]:
        """The slope of each head [nats a token]."""
        power = 2 ** math.floor(math.log2(self.heads))
        first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
        between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
        return first + between[: self.heads - power]

    def bias(self, where: Geometry) -> Bias:
        """The penalty for each head, query and key."""
        offset = where.offset[..., 0]
        wide = torch.promote_types(offset.dtype, torch.float32)
        slopes = torch.tensor(self.slopes, dtype=wide, device=offset.device)
        return -slopes[:, None, None] * offset.abs().to(wide)[:, None]
