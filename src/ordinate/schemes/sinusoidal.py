"""Sinusoidal position embeddings (Vaswani et al., 2017)."""

from typing import get_args

import torch
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.core.tensors import in_float64, on_device
from ordinate.ops.sinusoids import VASWANI, Form, OddWidth, sinusoids
from ordinate.schemes._scheme import Scheme


class Sinusoidal(Scheme):
    """Sinusoidal position embeddings: add sines and cosines of the position to the token embeddings.

        x[p, 2m] += sin(p * w_m),   x[p, 2m+1] += cos(p * w_m),   w_m = theta^(-2m / width)

    Enters at: token embeddings.
    Args:
        width: model width.
        theta: base of the wavelengths; the longest is about 2 pi theta tokens.
        form: `vaswani` as above; `concatenated` puts all sines before all cosines (x-transformers, Marian);
            `tensor2tensor` does too, with w_m = theta^(-m/(pairs-1)) (fairseq, M2M100).
        odd_width: for an odd width: `paper` (the default there) applies the formula as it is, `truncate` computes the
            next larger even width and drops the last column (positional-encodings on PyPI), `zero_pad` computes the
            next smaller even width and appends a zero column (fairseq, M2M100).
        scale: amplitude of the sinusoids, 1 in the paper; should match the magnitude of the token embeddings, in
            training too. A model gives `Shape.embedding_std`, 0.02 by default. Training enlarges a table that starts
            at 0.02 several times, and sinusoids of fixed amplitude lose their share of the sum; so a study starts it
            at width^(-1/2), as the paper does (section 3.4), and scales the token embeddings to the sinusoids.
        trainable: whether the amplitude is trained, initialised to `scale`. x-transformers initialises it to
            width^(-1/2), ESPnet's scaled form to 1.
        position_offset: added to each position [tokens]; fairseq and M2M100 count from the index of the padding token
            + 1, which is 2.
    Raises:
        ValueError: `odd_width` is given for an even width, where it has no effect.
    Source: Vaswani et al. 2017, Attention Is All You Need, section 3.5, https://arxiv.org/abs/1706.03762; the other
        forms are those of public code; a trained amplitude from Li et al. 2019, Neural Speech Synthesis with
        Transformer Network, section 3.2, https://arxiv.org/abs/1809.08895.
    Departs: nowhere. Any real position is supported, not only the rows of a table.
    """

    shift_invariant = False
    citation = VASWANI

    def __init__(
        self,
        *,
        width: int,
        theta: float = 10_000.0,
        form: Form = "vaswani",
        odd_width: OddWidth | None = None,
        scale: float = 1.0,
        trainable: bool = False,
        position_offset: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("theta", theta), ("scale", scale)):
            need_positive(name, value)
        need_known("form", form, get_args(Form))
        need_known("odd_width", odd_width or "paper", get_args(OddWidth))
        need(
            odd_width is None or width % 2 == 1,
            "odd_width says what to do with an odd width",
            f"got odd_width={odd_width!r} at width {width}, where it has no effect",
            "leave odd_width out",
        )
        self.width, self.theta, self.form, self.position_offset = width, theta, form, position_offset
        self.scale = nn.Parameter(torch.full((1,), float(scale))) if trainable else scale
        self.odd_width: OddWidth = odd_width or "paper"

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the sinusoids to the token embeddings."""
        waves = sinusoids(
            in_float64(pos) + self.position_offset, self.width, theta=self.theta, form=self.form, odd=self.odd_width
        )
        scale = in_float64(self.scale) if isinstance(self.scale, Tensor) else self.scale
        return x + on_device(scale * waves, x.dtype, x.device)
