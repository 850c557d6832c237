"""Lengths from content, directions from position."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.checks import need_positive
from ordinate.ops.heads import for_heads, key_heads
from ordinate.scheme import Scheme
from ordinate.shapes import Keys, MarkedKeys, MarkedQueries, Positions, Queries


class Pope(Scheme):
    """Make each channel of queries and keys an arrow: its length says what, its direction says where.

        q[c] -> softplus(q[c]) * (cos(p w_c), sin(p w_c)),     w_c = theta^(-c/d),  c = 0 .. d - 1
        k[c] -> softplus(k[c]) * (cos(p w_c + b[h, c]), sin(p w_c + b[h, c]))

    In q.k every channel gives softplus(q) softplus(k) cos((p_q - p_k) w_c - b): in rope the content of a pair of
    channels has a direction too, which mixes with that of the position. Queries and keys become twice as wide, values
    do not; q.k is scaled as before, by 1/sqrt(d).

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, d; odd ones serve too.
        heads: heads of the model.
        kv_heads: heads of the keys; None: as many.
        theta: base of the wavelengths.
        birth: whether the trained phases b, which are kept within [-2 pi, 0], begin at `zero` or `uniform` in there.
    Raises:
        ValueError: kv_heads that do not divide heads.
    Source: Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534, phases from the code of x-transformers and
        PoPE-pytorch.
    Departs: nowhere. In a call of `attend`, give scale=1/sqrt(d): it would take the doubled width.
    """

    per_layer = True
    shift_invariant = True
    citation = """@article{gopalakrishnan2025decoupling,
  title = {Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings},
  author = {Gopalakrishnan, Anand and Csord{\\'a}s, R{\\'o}bert and Schmidhuber, J{\\"u}rgen and Mozer, Michael C.},
  journal = {arXiv preprint arXiv:2509.10534},
  year = {2025},
  url = {https://arxiv.org/abs/2509.10534}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        heads: int,
        kv_heads: int | None = None,
        theta: float = 10_000.0,
        birth: Literal["zero", "uniform"] = "zero",
    ) -> None:
        super().__init__()
        for name, value in (("head_width", head_width), ("theta", theta)):
            need_positive(name, value)
        groups = key_heads(heads, kv_heads)
        self.head_width, self.theta = head_width, theta
        phases = torch.zeros(groups, 1, head_width)
        self.phases = nn.Parameter(phases.uniform_(-2 * math.pi, 0) if birth == "uniform" else phases)

    def encode_query(self, q: Queries, pos: Positions) -> MarkedQueries:
        """Give the queries their directions."""
        return _point(q, self.angles(pos)[:, None])

    def encode_key(self, k: Keys, pos: Positions) -> MarkedKeys:
        """Give the keys their directions, each head turned by its phases."""
        phases = for_heads(self.phases, k.shape[1]).clamp(-2 * math.pi, 0)
        return _point(k, self.angles(pos)[:, None] + phases.double())

    def angles(self, pos: Positions) -> Float[Tensor, "#b n d"]:
        """The direction of each channel at each position [radians]."""
        rates = [self.theta ** (-c / self.head_width) for c in range(self.head_width)]
        return pos[..., :1].double() * torch.tensor(rates, dtype=torch.float64, device=pos.device)


def _point(x: Float[Tensor, "b h n d"], angles: Float[Tensor, "#b #h n d"]) -> Float[Tensor, "b h n twice"]:
    wide = torch.promote_types(x.dtype, torch.float32)
    # in float32 the last numbers of a tensor go another way through softplus than those before, and round otherwise
    length = nn.functional.softplus(x.double().nan_to_num(0.0, math.inf, -math.inf)).to(wide)
    # a NaN comes back as a constant: the slope of softplus there would spoil the gradient of padding, which is 0
    length = length + (x - x).detach().to(wide)
    return torch.cat([length * angles.cos().to(wide), length * angles.sin().to(wide)], -1).to(x.dtype)
