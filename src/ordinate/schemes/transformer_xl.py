"""Transformer-XL relative position encoding (Dai et al., 2019)."""

import math
from typing import get_args

import torch
from torch import nn

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Queries
from ordinate.core.tensors import on_device
from ordinate.ops.offsets import offset_sinusoids, sinusoidal_offset_scores
from ordinate.ops.relative import RelativeVectors, check_table
from ordinate.ops.rotate import Layout
from ordinate.schemes._scheme import Scheme


class TransformerXl(Scheme):
    """Transformer-XL attention: add the product of each query with projected sinusoids of the offset.

    Two trained vectors for each head (u and v in the paper) are added to the query in the content and in the position
    term.

        score(i, j) = ((q_i + content) . k_j + (q_i + position) . W R(p_i - p_j)) / sqrt(d)

        R(t) = [sin(w_m t), cos(w_m t)],   w_m = theta^(-2m / width),   m = 0 .. width/2 - 1

    The sinusoids are defined for any offset, so sequences may be longer than in training. XLNet uses this attention.

    Enters at: scores (content-dependent).
    Args:
        width: model width, and width of the sinusoidal embedding of an offset; even.
        heads: heads of the model.
        head_width: channels of a head, d.
        theta: base of the wavelengths.
        layout: order of sines and cosines, which permutes the columns of W: `half` has all sines before all cosines
            (the published code, XLNet), `interleaved` alternates them (wav2vec2-conformer, ESPnet).
        max_offset: offsets are clipped to -max_offset .. max_offset; None: no clipping [tokens].
    Raises:
        ValueError: an odd width, an unknown layout, or a size, theta or max_offset not above zero.
    Source: Dai et al. 2019, Transformer-XL, section 3.3, https://arxiv.org/abs/1901.02860; all parameters are
        initialised normal with a standard deviation of 0.02, as in its published code.
    Departs: each layer has its own vectors, which the published code shares among layers by default. XLNet's segment
        term is left out: it depends on the segments of two tokens, not on their positions.
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
        max_offset: float | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("heads", heads), ("head_width", head_width), ("theta", theta)):
            need_positive(name, value)
        must = "each frequency has a sine and a cosine, so the width must be even"
        need(width % 2 == 0, must, f"got {width}", "choose an even width")
        need_known("layout", layout, get_args(Layout))
        if max_offset is not None:
            need_positive("max_offset", max_offset)
        self.width, self.heads, self.head_width = width, heads, head_width
        self.theta, self.layout, self.max_offset = theta, layout, max_offset
        self.content = nn.Parameter(torch.randn(heads, head_width) * 0.02)
        self.position = nn.Parameter(torch.randn(heads, head_width) * 0.02)
        self.project = nn.Parameter(torch.randn(heads, head_width, width) * 0.02)

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        """Return the content term of the trained vector and the position term of query and trained vector."""
        check_table(self.content[:, None], q.shape[1], q.shape[3])
        wide = torch.promote_types(q.dtype, torch.float32)
        contents = k.to(wide) @ self.content.to(wide)[:, :, None]
        asked = (q.to(wide) + self.position.to(wide)[:, None]) @ self.project.to(wide)
        offsets = sinusoidal_offset_scores(asked, where, theta=self.theta, layout=self.layout, clamp=self.max_offset)
        return (contents.mT + offsets) * self.head_width**-0.5

    def relative_vectors(self, where: Geometry) -> RelativeVectors:
        """Return the projected sinusoids of each offset; the content vector is the same for all offsets."""
        wide = torch.promote_types(self.project.dtype, torch.float32)
        found = offset_sinusoids(
            where.offset[0, 0, :, 0], self.width, theta=self.theta, layout=self.layout, clamp=self.max_offset
        )
        found, project = on_device(found, wide, self.project.device), self.project.to(wide) * self.head_width**-0.5
        asked = nn.functional.linear(found, project.flatten(0, 1)).unflatten(1, (self.heads, -1))
        asked = asked.transpose(0, 1)
        held = self.content.to(wide)[:, None] * self.head_width**-0.5
        number = (asked @ self.position.to(wide)[:, :, None])[..., 0]
        return RelativeVectors(asked, held, number, reach=math.inf if self.max_offset is None else self.max_offset)
