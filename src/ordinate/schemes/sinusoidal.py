"""Fixed waves added to the tokens."""

from typing import get_args

import torch
from torch import nn

from ordinate.checks import need, need_known, need_positive
from ordinate.ops.waves import VASWANI, Form, Odd, sinusoids
from ordinate.scheme import Scheme
from ordinate.shapes import Positions, Tokens


class Sinusoidal(Scheme):
    """Add sines and cosines of the position to each token, from fast waves to slow ones.

        x[p, 2m] += sin(p * w_m),   x[p, 2m+1] += cos(p * w_m),   w_m = theta^(-2m / width)

    Enters at: tokens.
    Args:
        width: columns of the model.
        theta: base of the wavelengths; the longest is about 2 pi theta tokens.
        form: `vaswani` as above; `concatenated` puts all sines before all cosines (x-transformers, Marian);
            `tensor2tensor` does too, with w_m = theta^(-m/(pairs-1)) (fairseq, M2M100).
        odd: what to do with an odd width: `paper` (the default there) applies the formula to the width as it is,
            `truncate` makes the next even width and drops its last column (positional-encodings on PyPI), `zero_pad`
            makes the even width below and adds a zero column (fairseq, M2M100).
        scale: amplitude of the waves; best the size of a token's numbers in the model, which the paper makes 1.
        trained: whether the amplitude is trained, from `scale` on. x-transformers begins at width^(-1/2), ESPnet's
            scaled form at 1.
        first: what the waves take the position 0 for [tokens]; fairseq and M2M100 begin behind the number of the
            padding token, which is 1 there: first = 2.
    Raises:
        ValueError: `odd` is given for an even width, where it has no effect.
    Source: Vaswani et al. 2017, Attention Is All You Need, section 3.5, https://arxiv.org/abs/1706.03762; the other
        forms are those of public code; a trained amplitude from Li et al. 2019, Neural Speech Synthesis with
        Transformer Network, section 3.2, https://arxiv.org/abs/1809.08895.
    Departs: nowhere. Any real position is served, not only those of a table.
    """

    shift_invariant = False
    citation = VASWANI

    def __init__(
        self,
        *,
        width: int,
        theta: float = 10_000.0,
        form: Form = "vaswani",
        odd: Odd | None = None,
        scale: float = 1.0,
        trained: bool = False,
        first: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("theta", theta), ("scale", scale)):
            need_positive(name, value)
        need_known("form", form, get_args(Form))
        need_known("odd", odd or "paper", get_args(Odd))
        need(
            odd is None or width % 2 == 1,
            "odd says what to do with an odd width",
            f"got odd={odd!r} at width {width}, where it has no effect",
            "leave odd out",
        )
        self.width, self.theta, self.form, self.first = width, theta, form, first
        self.scale = nn.Parameter(torch.full((1,), float(scale))) if trained else scale
        self.odd: Odd = odd or "paper"

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the waves to the tokens."""
        waves = sinusoids(pos.double() + self.first, self.width, theta=self.theta, form=self.form, odd=self.odd)
        return x + (self.scale * waves).to(x.dtype)
