"""Sinusoidal position embeddings concatenated to the token embeddings."""

import torch

from ordinate.core.checks import need, need_positive
from ordinate.core.shapes import EmbeddedTokens, Positions, Tokens
from ordinate.core.tensors import on_device
from ordinate.ops.sinusoids import VASWANI, sinusoids
from ordinate.schemes._scheme import Scheme


class Concatenated(Scheme):
    """Concatenate sinusoidal position embeddings to the token embeddings instead of adding them.

        x[p] = [token[p], sinusoids(p)],   sinusoids as in Sinusoidal, over `position_width` columns

    A linear map of [token, sinusoids] is the sum of two linear maps: W [t; p] = W_t t + W_p p. So it can express all
    that addition can, and content and position have separate subspaces; the cost is model width.

    Enters at: token embeddings.
    Args:
        width: model width, including the position columns.
        position_width: number of position columns; None: a quarter of the width, rounded to an even number. The token
            embedding has the remaining columns.
        theta: base of the wavelengths; the longest is about 2 pi theta tokens.
        scale: amplitude of the sinusoids; should match the magnitude of the token embeddings.
    Raises:
        ValueError: no column is left for the token embedding.
    Source: sinusoids from Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762; concatenation as
        discussed in https://github.com/tensorflow/tensor2tensor/issues/1591.
    Departs: concatenates where the paper adds.
    """

    shift_invariant = False
    citation = VASWANI

    def __init__(
        self, *, width: int, position_width: int | None = None, theta: float = 10_000.0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.appended_width = max(2, width // 8 * 2) if position_width is None else position_width
        need_positive("position_width", self.appended_width)
        need_positive("theta", theta)
        need_positive("scale", scale)
        need(
            self.appended_width < width,
            "concatenated must leave columns for the tokens",
            f"got {self.appended_width} of {width} columns",
            "give a smaller position_width or a larger width",
        )
        self.width, self.theta, self.scale = width, theta, scale

    def embed(self, x: Tokens, pos: Positions) -> EmbeddedTokens:
        """Append the sinusoids to each token embedding."""
        waves = self.scale * sinusoids(pos, self.appended_width, theta=self.theta, form="vaswani", odd="paper")
        return torch.cat([x, on_device(waves, x.dtype, x.device).expand(x.shape[0], -1, -1)], -1)
