"""Sandwich: a relative position bias from sinusoidal embeddings (Chi et al., 2023)."""

import torch

from ordinate.core.checks import need, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.core.tensors import on_device
from ordinate.ops.distance import distance
from ordinate.schemes._scheme import Scheme


class Sandwich(Scheme):
    """Sandwich: add the inner product of the sinusoidal embeddings of both positions, scaled for each head.

        bias(h, i, j) = H / (8h) * ( sum over m of cos((p_i - p_j) / theta^(2m/d)) - d/2 ),      h = 1 .. H

    The sum runs over d/2 frequencies, m = first_frequency .. first_frequency + d/2 - 1: the inner product of the two
    sinusoidal position embeddings. It falls roughly with the logarithm of the distance, with oscillations. There are
    no parameters.

    Enters at: scores.
    Args:
        heads: heads of the model, H.
        sinusoid_width: width of the sinusoidal embeddings, d; 128 in the paper, which tunes it.
        first_frequency: index of the first frequency: 0 as in attention-gym, 1 as in NeMo.
        theta: base of the wavelengths.
    Raises:
        ValueError: an odd sinusoid_width, a first_frequency other than 0 and 1, or a number that is not positive.
    Source: Chi et al. 2023, https://arxiv.org/abs/2212.10356; heads as in attention-gym and NeMo.
    Departs: d/2 is subtracted, as in NeMo, so that the bias at distance 0 is 0; the softmax cancels this constant.
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

    def __init__(
        self, *, heads: int, sinusoid_width: int = 128, first_frequency: int = 0, theta: float = 10000.0
    ) -> None:
        super().__init__()
        for name, value in (("heads", heads), ("sinusoid_width", sinusoid_width), ("theta", theta)):
            need_positive(name, value)
        need(
            sinusoid_width % 2 == 0, "sandwich needs an even sinusoid_width", f"got {sinusoid_width}", "128 is usual"
        )
        need(
            first_frequency in (0, 1),
            "first_frequency must be 0 or 1",
            f"got {first_frequency}",
            "0 includes the highest frequency",
        )
        self.heads = heads
        self.rates = [
            theta ** (-2 * m / sinusoid_width) for m in range(first_frequency, first_frequency + sinusoid_width // 2)
        ]

    def bias(self, where: Geometry) -> Bias:
        far = distance(where.offset, dtype=torch.float64)[:, None]
        penalty = torch.zeros_like(far)
        for rate in self.rates:
            # 1 - cos(x) without cancellation near 0
            penalty = penalty + 2 * torch.sin(far * (rate / 2)).square()
        slopes = [self.heads / (8 * h) for h in range(1, self.heads + 1)]
        wide = numbers_beside(far, slopes, torch.float64)[:, None, None]
        return on_device(-wide * penalty, self.bias_dtype, where.q_pos.device)
