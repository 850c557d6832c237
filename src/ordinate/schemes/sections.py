"""Rotation of queries and keys by time, height and width at once."""

from typing import Literal

import torch

from ordinate.checks import need, need_positive
from ordinate.ops.rotate import Angles, Layout, Rotation
from ordinate.scheme import Encoder, Scheme
from ordinate.shapes import Keys, Positions, Queries

Order = Literal["chunked", "interleaved", "ernie"]


class Sections(Scheme):
    """Rotate as rope does, but let some pairs of channels follow time, some the height, and some the width.

        angle(p, s) = p[axis(s)] * theta^(-2s/D),   s = 0 .. D/2 - 1     [radians]

    A text token stands at the same place on all three axes, and is marked exactly as by rope; a patch of an image or
    of a film has a time, a row and a column of its own. So one model reads both.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head.
        sections: pairs of channels that follow time, height and width; D is twice their sum, other channels stay as
            they are. None: all channels, in the shares of the models named below.
        order: which axis each pair follows. `chunked` (Qwen2-VL): first time, then height, then width; `interleaved`
            (Qwen3-VL): time, height, width in turn, then time; `ernie` (Ernie 4.5 VL): height, width in turn, then
            time.
        theta: base of the wavelengths.
        layout: which channels pair up, `half` or `interleaved` as in rope.
    Raises:
        ValueError: sections that do not fit the head or the order, or an axis without any.
    Source: Wang et al. 2024, Qwen2-VL, section 2.1, https://arxiv.org/abs/2409.12191; orders from the code of
        transformers.
    Departs: sections that the interleaved order cannot deal out are an error; there they silently become others.
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
        order: Order = "chunked",
        theta: float = 10_000.0,
        layout: Layout = "half",
    ) -> None:
        super().__init__()
        need_positive("theta", theta)
        pairs = head_width // 2
        need(pairs > 2, "each of 3 axes needs 2 channels of a head", f"got {head_width}", "choose fewer heads")
        sections = _shares(order, pairs) if sections is None else sections
        need(
            min(sections) > 0 and sum(sections) <= pairs,
            f"each of 3 axes has pairs of channels, {pairs} at most together",
            f"got sections={sections} for head width {head_width}",
            "give as many pairs for time, height and width as the head has",
        )
        self.layout, self.theta = layout, theta
        self.follows = _deal(order, sections)

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Rotate the queries."""
        return self.encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        """Rotate the keys."""
        return self.encoders(pos)[1](k)

    def encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """One rotation for queries and keys."""
        rotation = Rotation.by(self.angles(pos), self.layout)
        return rotation, rotation

    def angles(self, pos: Positions) -> Angles:
        """The angle of each pair of channels at each position [radians]."""
        pairs = len(self.follows)
        table = torch.tensor(
            [self.theta ** (-s / pairs) for s in range(pairs)], dtype=torch.float64, device=pos.device
        )
        # one axis is the place of a text token on all three
        place = pos if pos.shape[-1] == 1 else pos[..., self.follows]
        return place.double() * table


def _shares(order: Order, pairs: int) -> tuple[int, int, int]:
    """(16, 24, 24), (24, 20, 20) or (20, 22, 22) of 64 pairs."""
    of_64 = {"chunked": 24, "interleaved": 20, "ernie": 22}
    side = max(of_64[order] * pairs // 64, 1)
    return pairs - 2 * side, side, side


def _deal(order: Order, sections: tuple[int, int, int]) -> list[int]:
    """The axis that each pair follows: 0 time, 1 height, 2 width."""
    time, height, width = sections
    if order == "chunked":
        return [0] * time + [1] * height + [2] * width
    if order == "ernie":
        need(height == width, "ernie deals out height and width in turn", f"got {sections}", "give both alike")
        return [1, 2] * height + [0] * time
    pairs = sum(sections)
    fits = 3 * height - 2 < pairs and 3 * width - 1 < pairs
    came = f"got {sections}"
    need(fits, f"height and width get every third of {pairs} pairs at most", came, "give time more, or chunk them")
    follows = [0] * pairs
    follows[1 : 3 * height : 3] = [1] * height
    follows[2 : 3 * width : 3] = [2] * width
    return follows
