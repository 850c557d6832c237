"""M-RoPE: multimodal rotary position embedding with sections for time, height and width (Qwen2-VL)."""

from typing import Literal

import torch

from ordinate.core.checks import need, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import Keys, Positions, Queries
from ordinate.core.tensors import in_float64
from ordinate.ops.rotate import Angles, Layout, Rotation
from ordinate.schemes._scheme import Encoder, Scheme

SectionOrder = Literal["chunked", "interleaved", "ernie"]


class Sections(Scheme):
    """M-RoPE: RoPE whose channel pairs are divided into sections for time, height and width.

        angle(p, s) = p[axis(s)] * theta^(-2s/D),   s = 0 .. D/2 - 1     [radians]

    A text token has the same position on all three axes, for which this equals RoPE; a patch of an image or video has
    a time, a row and a column. So one model can process both.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head.
        sections: channel pairs for time, height and width; D is twice their sum, other channels are not rotated.
            None: all channels, in the proportions of the models named below.
        order: assignment of pairs to axes. `chunked` (Qwen2-VL): first time, then height, then width; `interleaved`
            (Qwen3-VL): time, height, width in turn, then time; `ernie` (Ernie 4.5 VL): height, width in turn, then
            time.
        theta: base of the wavelengths.
        layout: which channels form a pair, `half` or `interleaved` as in rope.
    Raises:
        ValueError: sections that do not fit the head or the order, or an axis without channels.
    Source: Wang et al. 2024, Qwen2-VL, section 2.1, https://arxiv.org/abs/2409.12191; orders from the code of
        transformers.
    Departs: sections that cannot be interleaved are an error; there they are silently changed.
    """

    axes = (1, 3)
    shift_invariant = True
    citation = """@article{wang2024qwen2,
  title = {Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution},
  author = {Wang, Peng and Bai, Shuai and Tan, Sinan and Wang, Shijie and Fan, Zhihao and Bai, Jinze and
            Chen, Keqin and Liu, Xuejing and Wang, Jialin and Ge, Wenbin and Fan, Yang and Dang, Kai and
            Du, Mengfei and Ren, Xuancheng and Men, Rui and Liu, Dayiheng and Zhou, Chang and Zhou, Jingren and
            Lin, Junyang},
  journal = {arXiv preprint arXiv:2409.12191},
  year = {2024},
  url = {https://arxiv.org/abs/2409.12191}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        sections: tuple[int, int, int] | None = None,
        order: SectionOrder = "chunked",
        theta: float = 10_000.0,
        layout: Layout = "half",
    ) -> None:
        super().__init__()
        need_positive("theta", theta)
        pairs = head_width // 2
        need(
            pairs > 2,
            "each of 3 axes needs 2 channels of a head",
            f"got head_width {head_width}",
            "choose fewer heads",
        )
        sections = _shares(order, pairs) if sections is None else sections
        need(
            min(sections) > 0 and sum(sections) <= pairs,
            f"sections must be positive and add up to at most {pairs} channel pairs",
            f"got sections={sections} for head_width {head_width}",
            "divide the channel pairs of the head among time, height and width",
        )
        self.layout, self.theta = layout, theta
        self.axis_of_pair = _deal(order, sections)

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        return self.make_encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        return self.make_encoders(pos)[1](k)

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Return one rotation for queries and keys."""
        rotation = Rotation.by(self.angles(pos), self.layout)
        return rotation, rotation

    def angles(self, pos: Positions) -> Angles:
        """The angle of each pair of channels at each position [radians]."""
        pairs = len(self.axis_of_pair)
        # one axis is the place of a text token on all three
        place = in_float64(
            pos if pos.shape[-1] == 1 else pos.index_select(-1, numbers_beside(pos, self.axis_of_pair, torch.int64))
        )
        rates = [self.theta ** (-s / pairs) for s in range(pairs)]
        return place * numbers_beside(place, rates, torch.float64)


def _shares(order: SectionOrder, pairs: int) -> tuple[int, int, int]:
    """Return default sections: (16, 24, 24), (24, 20, 20) or (20, 22, 22) for 64 pairs."""
    of_64 = {"chunked": 24, "interleaved": 20, "ernie": 22}
    side = max(of_64[order] * pairs // 64, 1)
    return pairs - 2 * side, side, side


def _deal(order: SectionOrder, sections: tuple[int, int, int]) -> list[int]:
    """Return the axis of each channel pair: 0 time, 1 height, 2 width."""
    time, height, width = sections
    if order == "chunked":
        return [0] * time + [1] * height + [2] * width
    if order == "ernie":
        must = "order='ernie' needs equal sections for height and width"
        need(height == width, must, f"got {sections}", "make the last two equal")
        return [1, 2] * height + [0] * time
    pairs = sum(sections)
    fits = 3 * height - 2 < pairs and 3 * width - 1 < pairs
    came = f"got {sections}"
    must = f"order='interleaved' gives height and width at most every third of {pairs} pairs"
    need(fits, must, came, "enlarge the section of time, or use order='chunked'")
    follows = [0] * pairs
    follows[1 : 3 * height : 3] = [1] * height
    follows[2 : 3 * width : 3] = [2] * width
    return follows
