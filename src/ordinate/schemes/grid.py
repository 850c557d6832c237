"""Fixed waves of every axis of an image or a film, added to the tokens."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need, need_known, need_positive
from ordinate.ops.waves import sinusoids
from ordinate.scheme import Scheme
from ordinate.shapes import Positions, Tokens

Order = Literal["vaswani", "mae", "timm"]
Rest = Literal["zero_pad", "truncate"]


class Grid(Scheme):
    """Add sines and cosines of the row, the column and the frame to each token, in columns of their own.

        x[p] += [waves(p_1), waves(p_2), ...],    waves(p_a) = sin(p_a * w_m), cos(p_a * w_m),  m = 0 .. pairs - 1

        w_m = theta^(-m / pairs),    pairs = floor(width / (2 axes))

    Each axis gets as many columns as the others, so none can hide another. Columns that are left over stay as they
    are.

    Enters at: tokens.
    Args:
        width: columns of the model.
        theta: base of the wavelengths; the longest is about 2 pi theta steps of the grid.
        form: the order of the columns. `vaswani` alternates sine and cosine within each axis (Wang and Liu,
            positional-encodings on PyPI); `mae` puts the sines of an axis before its cosines (MAE, ViTMAE in
            transformers); `timm` puts the sines of all axes before the cosines of all.
        rest: what to do with a width that the axes cannot share evenly: `zero_pad` (the default there) leaves the
            last columns without waves, `truncate` rounds each share up and cuts the last axis short
            (positional-encodings, V-JEPA with uniform power).
        reverse: begin with the last axis: columns before rows (MAE's own code).
        scale: amplitude of the waves; best the size of a token's numbers in the model.
    Raises:
        ValueError: a width that leaves some axis without a sine and a cosine, or `rest` for a width that two and
            three axes share evenly, where it has no effect.
    Source: Wang and Liu 2019, Translating Math Formula Images to LaTeX Sequences, https://arxiv.org/abs/1908.11415,
        for two axes; the waves are those of Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762.
    Departs: three axes as in positional-encodings on PyPI; any real position is served.
    """

    axes = (2, 3)
    shift_invariant = False
    citation = """@article{wang2019translating,
  title = {Translating Math Formula Images to {LaTeX} Sequences Using Deep Neural Networks with Sequence-level
           Training},
  author = {Wang, Zelun and Liu, Jyh-Charn},
  journal = {arXiv preprint arXiv:1908.11415},
  year = {2019},
  url = {https://arxiv.org/abs/1908.11415}
}"""

    def __init__(
        self,
        *,
        width: int,
        theta: float = 10_000.0,
        form: Order = "vaswani",
        rest: Rest | None = None,
        reverse: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("theta", theta), ("scale", scale)):
            need_positive(name, value)
        need_known("form", form, get_args(Order))
        need_known("rest", rest or "zero_pad", get_args(Rest))
        least = min(self.axes)
        need(
            width >= 2 * least,
            "each axis needs a sine and a cosine",
            f"got {width} columns for {least} axes",
            f"give a width of {2 * least} or more",
        )
        need(
            rest is None or any(width % (2 * axes) for axes in self.axes),
            "rest says what to do with columns that the axes cannot share",
            f"got rest={rest!r} at width {width}, where it has no effect",
            "leave rest out",
        )
        self.width, self.theta, self.form, self.rest = width, theta, form, rest
        self.reverse, self.scale = reverse, scale

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the waves of all axes to the tokens."""
        return x + (self.scale * self._waves(pos)).to(x.dtype)

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless there are columns for every axis."""
        super().check_positions(pos)
        self._pairs(pos.shape[-1])

    def _waves(self, pos: Positions) -> Float[Tensor, "#b n width"]:
        axes = pos.flip(-1) if self.reverse else pos
        form, columns = "vaswani" if self.form == "vaswani" else "concatenated", 2 * self._pairs(pos.shape[-1])
        parts = [sinusoids(axis, columns, theta=self.theta, form=form, odd="paper") for axis in axes.split(1, -1)]
        if self.form == "timm":
            sines, cosines = zip(*(part.chunk(2, -1) for part in parts), strict=True)
            parts = [*sines, *cosines]
        waves = torch.cat(parts, -1)
        return nn.functional.pad(waves, (0, self.width - waves.shape[-1]))

    def _pairs(self, axes: int) -> int:
        """Sines of each axis, if the last axis keeps one with its cosine."""
        pairs = self.width // (2 * axes) if self.rest != "truncate" else -(-self.width // (2 * axes))
        cut = max(2 * pairs * axes - self.width, 0)
        whole = pairs - cut if self.form != "vaswani" else pairs - (cut + 1) // 2
        need(
            whole > 0,
            "each axis needs a sine and a cosine",
            f"got {self.width} columns for {axes} axes" + (", cut short" if cut else ""),
            f"give a width of {2 * axes} or more" if not cut else "leave rest='truncate' out, or give a larger width",
        )
        return pairs
