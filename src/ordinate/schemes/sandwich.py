"""A penalty made of sinusoids, which grows with the logarithm of the distance."""

import torch

from ordinate.checks import need, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.distance import distance
from ordinate.scheme import Scheme
from ordinate.shapes import Bias


class Sandwich(Scheme):
    """Lower each score by how much the sinusoids of two positions differ, at a strength that belongs to the head.

        bias(h, i, j) = H / (8h) * ( sum over m of cos((p_i - p_j) / theta^(2m/d)) - d/2 ),      h = 1 .. H

    The sum runs over d/2 waves, m = first .. first + d/2 - 1. It is the product of the two sinusoidal encodings:
    their part in the scores if tokens and positions did not mix. It falls about as the logarithm of the distance,
    with ripples. Nothing is trained.

    Enters at: scores.
    Args:
        heads: heads of the model, H.
        size: d, columns that the sinusoidal encoding would have; the paper tunes it and takes 128.
        first: number of the first wave: 0 as in attention-gym, 1 as in NeMo.
        theta: base of the wavelengths.
    Raises:
        ValueError: an odd size, a first wave other than 0 and 1, or a number that is not positive.
    Source: Chi et al. 2023, https://arxiv.org/abs/2212.10356; heads as in attention-gym and NeMo.
    Departs: d/2 is taken away, as NeMo does, so that the bias at distance 0 is 0; it moves all scores of a head
        alike, which the softmax takes out again.
    """

    shift_invariant = True
    citation = """@inproceedings{chi2023dissecting,
  title = {Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis},
  author = {Chi, Ta-Chung and Fan, Ting-Han and Rudnicky, Alexander and Ramadge, Peter},
  booktitle = {Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics (Volume 1: Long
               Papers)},
  pages = {13522--13537},
  year = {2023},
  url = {https://arxiv.org/abs/2212.10356}
}"""

    def __init__(self, *, heads: int, size: int = 128, first: int = 0, theta: float = 10000.0) -> None:
        super().__init__()
        for name, value in (("heads", heads), ("size", size), ("theta", theta)):
            need_positive(name, value)
        need(size % 2 == 0, "sandwich needs an even size", f"got {size}", "128 is usual")
        need(first in (0, 1), "the first wave has the number 0 or 1", f"got {first}", "0 has the shortest wave")
        self.heads = heads
        self.rates = [theta ** (-2 * m / size) for m in range(first, first + size // 2)]

    def bias(self, where: Geometry) -> Bias:
        """The penalty for each head, query and key."""
        apart = distance(where.offset, dtype=torch.float64)[:, None]
        fallen = torch.zeros_like(apart)
        for rate in self.rates:
            # 1 - cos(x), which is exact near 0 as well
            fallen = fallen + 2 * torch.sin(apart * (rate / 2)).square()
        strengths = [self.heads / (8 * h) for h in range(1, self.heads + 1)]
        wide = torch.tensor(strengths, dtype=torch.float64, device=apart.device)[:, None, None]
        return (-wide * fallen).float()
