"""A sum of trained bumps over the distance."""

import torch
from torch import nn

from ordinate.checks import need_positive
from ordinate.geometry import Geometry
from ordinate.scheme import Scheme
from ordinate.shapes import Bias


class Tisa(Scheme):
    """Add to each score a smooth trained function of how far ahead or behind the key is: a sum of bumps.

        bias(h, i, j) = sum over s of  a_hs * exp(-|b_hs| * (p_i - p_j - c_hs)^2)

    Each head trains the height a, the sharpness b and the place c of each of its bumps, so it can learn things like
    "two tokens back" or "what comes next". Far from all bumps the bias is 0.

    Enters at: scores.
    Args:
        heads: heads of the model.
        kernels: bumps of each head.
    Raises:
        ValueError: a number that is not positive.
    Source: Wennberg & Henter 2021, https://arxiv.org/abs/2106.01950; births from its published code: c
        from N(0, 5) [tokens], a and b from N(0.1, 0.01), the second number being the standard deviation.
    Departs: the paper counts from query to key (p_j - p_i), which turns the sign of c around.
    """

    shift_invariant = True
    citation = """@inproceedings{wennberg2021case,
  title = {The Case for Translation-Invariant Self-Attention in Transformer-Based Language Models},
  author = {Wennberg, Ulme and Henter, Gustav Eje},
  booktitle = {Proceedings of the 59th Annual Meeting of the Association for Computational Linguistics and the 11th
               International Joint Conference on Natural Language Processing (Volume 2: Short Papers)},
  pages = {130--140},
  year = {2021},
  url = {https://arxiv.org/abs/2106.01950}
}"""

    def __init__(self, *, heads: int, kernels: int = 5) -> None:
        super().__init__()
        need_positive("heads", heads)
        need_positive("kernels", kernels)
        self.height = nn.Parameter(0.1 + 0.01 * torch.randn(kernels, heads))
        self.sharpness = nn.Parameter(0.1 + 0.01 * torch.randn(kernels, heads))
        self.center = nn.Parameter(5 * torch.randn(kernels, heads))

    def bias(self, where: Geometry) -> Bias:
        """The sum of the bumps for each head, query and key."""
        wide = torch.promote_types(self.height.dtype, torch.float32)
        # in float64 a place between two far tokens is still told apart
        offset = where.offset[..., 0].double()[:, None]
        bias = torch.zeros((), dtype=torch.float64, device=offset.device)
        for height, sharpness, center in zip(self.height, self.sharpness, self.center, strict=True):
            a, b, c = (number.double()[:, None, None] for number in (height, sharpness, center))
            bias = bias + a * torch.exp(-b.abs() * (offset - c).square())
        return bias.to(wide)
