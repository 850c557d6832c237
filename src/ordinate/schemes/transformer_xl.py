"""Waves of the offset, projected and met by queries."""

import math
from typing import get_args

import torch
from torch import nn

from ordinate.checks import need, need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.offsets import wave_scores, waves
from ordinate.ops.relative import Vectors, check_fit
from ordinate.ops.rotate import Layout
from ordinate.scheme import Scheme
from ordinate.shapes import Bias, Keys, Queries


class TransformerXl(Scheme):
    """Let each query meet the offset of each key as waves, through a trained projection.

    Two trained vectors for each head stand in for a query that looks at contents only, or at offsets only.

        score(i, j) = ((q_i + content) . k_j + (q_i + position) . W R(p_i - p_j)) / sqrt(d)

        R(t) = [sin(w_m t), cos(w_m t)],   w_m = theta^(-2m / width),   m = 0 .. width/2 - 1

    The waves serve any offset, so texts longer than in training have waves too. XLNet's attention is this one.

    Enters at: scores, from content too.
    Args:
        width: columns of the model: waves of an offset; even.
        heads: heads of the model.
        head_width: channels of a head, d.
        theta: base of the wavelengths.
        layout: `half` has all sines before all cosines (the published code, XLNet), `interleaved` has them in turn
            (wav2vec2-conformer, ESPnet). It orders the columns of W, and matters to a checkpoint only.
        clamp: offsets farther than this, to either side, count as this far; None: all as they are [tokens].
    Raises:
        ValueError: an odd width, an unknown layout, or a size, theta or clamp not above zero.
    Source: Dai et al. 2019, Transformer-XL, section 3.3, https://arxiv.org/abs/1901.02860; all parameters are born
        normal with a standard deviation of 0.02, as in its published code.
    Departs: each layer has vectors of its own, which the published code shares among layers unless told otherwise.
        XLNet's term for segments is left out: it knows which tokens belong together, not where they stand.
    """

    per_layer = True
    shift_invariant = True
    citation = """@inproceedings{dai2019transformer,
  title = {Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context},
  author = {Dai, Zihang and Yang, Zhilin and Yang, Yiming and Carbonell, Jaime and Le, Quoc V. and
            Salakhutdinov, Ruslan},
  booktitle = {Proceedings of the 57th Annual Meeting of the Association for Computational Linguistics},
  year = {2019},
  url = {https://arxiv.org/abs/1901.02860}
}"""

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int,
        theta: float = 10_000.0,
        layout: Layout = "half",
        clamp: float | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("heads", heads), ("head_width", head_width), ("theta", theta)):
            need_positive(name, value)
        need(width % 2 == 0, "waves come in pairs: the width must be even", f"got {width}", "choose an even width")
        need_known("layout", layout, get_args(Layout))
        if clamp is not None:
            need_positive("clamp", clamp)
        self.width, self.heads, self.head_width = width, heads, head_width
        self.theta, self.layout, self.clamp = theta, layout, clamp
        self.content = nn.Parameter(torch.randn(heads, head_width) * 0.02)
        self.position = nn.Parameter(torch.randn(heads, head_width) * 0.02)
        self.project = nn.Parameter(torch.randn(heads, head_width, width) * 0.02)

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """What contents are worth to all queries alike, and offsets to each."""
        check_fit(self.content[:, None], q.shape[1], q.shape[3])
        wide = torch.promote_types(q.dtype, torch.float32)
        contents = k.to(wide) @ self.content.to(wide)[:, :, None]
        asked = (q.to(wide) + self.position.to(wide)[:, None]) @ self.project.to(wide)
        offsets = wave_scores(asked, where, theta=self.theta, layout=self.layout, clamp=self.clamp)
        return (contents.mT + offsets) * self.head_width**-0.5

    def vectors(self, where: Geometry) -> Vectors:
        """The projected waves of the offsets; the vector that looks at contents only serves all of them."""
        wide = torch.promote_types(self.project.dtype, torch.float32)
        found = waves(where.offset[0, 0, :, 0], self.width, theta=self.theta, layout=self.layout, clamp=self.clamp)
        project = self.project.to(wide) * self.head_width**-0.5
        asked = nn.functional.linear(found.to(wide), project.flatten(0, 1)).unflatten(1, (self.heads, -1))
        asked = asked.transpose(0, 1)
        held = self.content.to(wide)[:, None] * self.head_width**-0.5
        number = (asked @ self.position.to(wide)[:, :, None])[..., 0]
        return Vectors(asked, held, number, reach=math.inf if self.clamp is None else self.clamp)
