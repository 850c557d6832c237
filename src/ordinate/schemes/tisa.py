"""TISA: translation-invariant self-attention (Wennberg and Henter, 2021)."""

import torch
from torch import nn

from ordinate.core.checks import need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.core.tensors import in_float64, on_device
from ordinate.schemes._scheme import Scheme


class Tisa(Scheme):
    """TISA: add a trained sum of Gaussian kernels of the offset to the scores.

        bias(h, i, j) = sum over s of  a_hs * exp(-|b_hs| * (p_i - p_j - c_hs)^2)

    Each head trains the height a, the sharpness b and the centre c of each of its kernels, so it can learn patterns
    such as "two tokens back" or "next token". Far from all centres the bias is 0.

    Enters at: scores.
    Args:
        heads: heads of the model.
        kernels: Gaussian kernels of each head.
    Raises:
        ValueError: a number that is not positive.
    Source: Wennberg & Henter 2021, https://arxiv.org/abs/2106.01950; initial values from its published code: c
        from N(0, 5) [tokens], a and b from N(0.1, 0.01), the second number being the standard deviation.
    Departs: the paper's offset is key minus query (p_j - p_i), which reverses the sign of c.
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
        wide = torch.promote_types(self.height.dtype, torch.float32)
        # in float64 a place between two far tokens is still distinguished
        offset = in_float64(where.offset[..., 0])[:, None]
        bias = torch.zeros((), dtype=torch.float64, device=offset.device)
        for height, sharpness, center in zip(self.height, self.sharpness, self.center, strict=True):
            a, b, c = (in_float64(number)[:, None, None] for number in (height, sharpness, center))
            bias = bias + a * torch.exp(-b.abs() * (offset - c).square())
        return on_device(bias, wide, where.q_pos.device)
