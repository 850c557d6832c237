"""Waves in columns of their own."""

import torch

from ordinate.checks import need, need_positive
from ordinate.ops.waves import VASWANI, sinusoids
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
        scale: amplitude of the waves; best the size of a token's numbers in the model.
    Raises:
        ValueError: no column would be left for the tokens.
    Source: waves from Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762; concatenation as discussed
        in https://github.com/tensorflow/tensor2tensor/issues/1591.
    Departs: concatenates where the paper adds.
    """

    shift_invariant = False
    citation = VASWANI

    def __init__(
        self, *, width: int, columns: int | None = None, theta: float = 10_000.0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.claims = max(2, width // 8 * 2) if columns is None else columns
        need_positive("columns", self.claims)
        need_positive("theta", theta)
        need_positive("scale", scale)
        need(
            self.claims < width,
            "concatenated must leave columns for the tokens",
            f"got {self.claims} of {width} columns",
            "give fewer columns or a larger width",
        )
        self.width, self.theta, self.scale = width, theta, scale

    def embed(self, x: Tokens, pos: Positions) -> Marked:
        """Append the waves to each token."""
        waves = self.scale * sinusoids(pos, self.claims, theta=self.theta, form="vaswani", odd="paper")
        return torch.cat([x, waves.to(x.dtype).expand(x.shape[0], -1, -1)], -1)
