"""Rotation of queries and keys."""

import torch

from ordinate.checks import need, need_positive
from ordinate.ops.rotate import Angles, Layout, rotate
from ordinate.scheme import Scheme
from ordinate.shapes import Keys, Positions, Queries


class Rope(Scheme):
    """Rotate each pair of channels of queries and keys by an angle that grows with position.

        angle(p, m) = p * theta^(-2m/d),  m = 0 .. d/2 - 1        [radians]

    Turning both by their own angles leaves in q.k their difference only: q and k meet at p_q - p_k.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, d.
        theta: base of the wavelengths; the longest is 2 pi theta^(1-2/d) tokens.
        layout: which channels pair up: `half` pairs m with m + d/2 (GPT-NeoX, Llama in transformers), `interleaved`
            pairs 2m with 2m + 1 (the paper, GPT-J). The two are one scheme after a permutation of the channels; a
            checkpoint is right with its own layout only.
    Raises:
        ValueError: the head width is odd.
    Source: Su et al. 2021, RoFormer, equation 34, https://arxiv.org/abs/2104.09864.
    Departs: nowhere. Angles in float64, the rotation in float32 at least, whatever the model's type.
    """

    shift_invariant = True
    citation = """@article{su2021roformer,
  title = {RoFormer: Enhanced Transformer with Rotary Position Embedding},
  author = {Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo and Liu, Yunfeng},
  journal = {arXiv preprint arXiv:2104.09864},
  year = {2021},
  url = {https://arxiv.org/abs/2104.09864}
}"""

    def __init__(self, *, head_width: int, theta: float = 10_000.0, layout: Layout = "half") -> None:
        super().__init__()
        need_positive("theta", theta)
        need(
            head_width > 0 and head_width % 2 == 0,
            "rope needs an even head width",
            f"got {head_width}",
            "choose heads that divide width into even parts",
        )
        self.head_width, self.theta, self.layout = head_width, theta, layout

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        """Rotate the queries."""
        return rotate(q, self.angles(pos), self.layout)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        """Rotate the keys."""
        return rotate(k, self.angles(pos), self.layout)

    def angles(self, pos: Positions) -> Angles:
        """The angle of each pair of channels at each position [radians]."""
        pairs = [self.theta ** (-2 * m / self.head_width) for m in range(self.head_width // 2)]
        return pos[..., :1].double() * torch.tensor(pairs, dtype=torch.float64, device=pos.device)
