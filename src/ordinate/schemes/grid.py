"""Sinusoidal position embeddings for images and video (2D and 3D sincos)."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.shapes import Positions, Tokens
from ordinate.core.tensors import on_device
from ordinate.ops.sinusoids import sinusoids
from ordinate.schemes._scheme import Scheme

ColumnOrder = Literal["vaswani", "mae", "timm"]
Remainder = Literal["zero_pad", "truncate"]


class Grid(Scheme):
    """2D and 3D sinusoidal position embeddings: sines and cosines of each axis, in separate columns.

        x[p] += [sinusoids(p_1), sinusoids(p_2), ...]

        sinusoids(p_a) = sin(p_a * w_m), cos(p_a * w_m),    m = 0 .. pairs - 1

        w_m = theta^(-m / pairs),    pairs = floor(width / (2 axes))

    Each axis has the same number of columns. Nothing is added to the remaining columns.

    Enters at: token embeddings.
    Args:
        width: model width.
        theta: base of the wavelengths; the longest is about 2 pi theta grid cells.
        form: order of the columns. `vaswani` alternates sine and cosine within each axis (Wang and Liu,
            positional-encodings on PyPI); `mae` puts the sines of an axis before its cosines (MAE, ViTMAE in
            transformers); `timm` puts the sines of all axes before the cosines of all.
        remainder: if the axes cannot share the width evenly: `zero_pad` (the default there) leaves the last columns
            at zero, `truncate` rounds each share up and truncates the last axis (positional-encodings, V-JEPA with
            uniform power).
        reverse_axes: order the axes from last to first: columns before rows (MAE's own code).
        scale: amplitude of the sinusoids; should match the magnitude of the token embeddings.
    Raises:
        ValueError: a width too small for a sine and a cosine of each axis, or `remainder` for a width that two and
            three axes share evenly, where it has no effect.
    Source: Wang and Liu 2019, Translating Math Formula Images to LaTeX Sequences, https://arxiv.org/abs/1908.11415,
        for two axes; sinusoids from Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762.
    Departs: three axes as in positional-encodings on PyPI; any real position is supported.
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
        form: ColumnOrder = "vaswani",
        remainder: Remainder | None = None,
        reverse_axes: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("theta", theta), ("scale", scale)):
            need_positive(name, value)
        need_known("form", form, get_args(ColumnOrder))
        need_known("remainder", remainder or "zero_pad", get_args(Remainder))
        least = min(self.axes)
        need(
            width >= 2 * least,
            "each axis needs a sine and a cosine",
            f"got {width} columns for {least} axes",
            f"give a width of {2 * least} or more",
        )
        need(
            remainder is None or any(width % (2 * axes) for axes in self.axes),
            "remainder says what to do with columns that the axes cannot share",
            f"got remainder={remainder!r} at width {width}, where it has no effect",
            "leave remainder out",
        )
        self.width, self.theta, self.form, self.remainder = width, theta, form, remainder
        self.reverse_axes, self.scale = reverse_axes, scale

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the sinusoids of all axes to the token embeddings."""
        return x + on_device(self.scale * self._waves(pos), x.dtype, x.device)

    def check_positions(self, pos: Positions) -> None:
        """Raise a ValueError unless there are columns for each axis."""
        super().check_positions(pos)
        self._pairs(pos.shape[-1])

    def _waves(self, pos: Positions) -> Float[Tensor, "#b n width"]:
        axes = pos.flip(-1) if self.reverse_axes else pos
        form, columns = "vaswani" if self.form == "vaswani" else "concatenated", 2 * self._pairs(pos.shape[-1])
        parts = [sinusoids(axis, columns, theta=self.theta, form=form, odd="paper") for axis in axes.split(1, -1)]
        if self.form == "timm":
            sines, cosines = zip(*(part.chunk(2, -1) for part in parts), strict=True)
            parts = [*sines, *cosines]
        waves = torch.cat(parts, -1)
        return nn.functional.pad(waves, (0, self.width - waves.shape[-1]))

    def _pairs(self, axes: int) -> int:
        """Return the number of sines of each axis; raise unless the last axis keeps at least one with its cosine."""
        pairs = self.width // (2 * axes) if self.remainder != "truncate" else -(-self.width // (2 * axes))
        cut = max(2 * pairs * axes - self.width, 0)
        whole = pairs - cut if self.form != "vaswani" else pairs - (cut + 1) // 2
        need(
            whole > 0,
            "each axis needs a sine and a cosine",
            f"got {self.width} columns for {axes} axes" + (", cut short" if cut else ""),
            f"give a width of {2 * axes} or more"
            if not cut
            else "leave remainder='truncate' out, or give a larger width",
        )
        return pairs
