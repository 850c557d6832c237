"""Waves in columns of their own."""

import torch

from ordinate.checks import need, need_positive
from ordinate.ops.waves import sinusoids
from ordinate.scheme import Scheme
from ordinate.shapes import Marked, Positions, Tokens


class Concatenated(Scheme):
    """Give the position columns of its own beside the token's, instead of adding the two.

        x[p] = [token[p], waves(p)],   waves as in Sinusoidal over `columns` columns

    A matrix that reads [token, waves] is two matrices side by side: W [t; p] = W_t t + W_p p. So nothing that adding
    can do is lost, and the two never share a direction; the price is width.

    Enters at: tokens.
    Args:
        width: columns of the model, the claimed ones included.
        columns: how many of them hold the position; None: a quarter, made even. The token table gets the rest.
        theta: base of the wavelengths; the longest is about 2 pi theta tokens.
    Raises:
        ValueError: no column would be left for the tokens.
    Source: waves from Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762; concatenation as discussed
        in https://github.com/tensorflow/tensor2tensor/issues/1591.
    Departs: concatenates where the paper adds.
    """

    shift_invariant = False
    citation = """@inproceedings{vaswani2017attention,
  title = {Attention Is All You Need},
  author = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and
            Gomez, Aidan N. and Kaiser, Lukasz and Polosukhin, Illia},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2017},
  url = {https://arxiv.org/abs/1706.03762}
}"""

    def __init__(self, *, width: int, columns: int | None = None, theta: float = 10_000.0) -> None:
        super().__init__()
        self.claims = max(2, width // 8 * 2) if columns is None else columns
        need_positive("columns", self.claims)
        need_positive("theta", theta)
        need(
            self.claims < width,
            "concatenated must leave columns for the tokens",
            f"got {self.claims} of {width} columns",
            "give fewer columns or a larger width",
        )
        self.theta = theta

    def embed(self, x: Tokens, pos: Positions) -> Marked:
        """Append the waves to each token."""
        waves = sinusoids(pos, self.claims, theta=self.theta, form="vaswani", odd="paper").to(x.dtype)
        return torch.cat([x, waves.expand(x.shape[0], -1, -1)], -1)
