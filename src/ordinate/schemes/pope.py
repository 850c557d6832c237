"""PoPE: polar coordinate position embedding (Gopalakrishnan et al., 2025)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import EncodedKeys, EncodedQueries, Keys, Positions, Queries
from ordinate.core.tensors import in_float64, on_device, widest_float
from ordinate.ops.finite_vectors import by_finite_vectors
from ordinate.ops.heads import repeat_for_heads, resolve_kv_heads
from ordinate.schemes._scheme import Scheme


class Pope(Scheme):
    """PoPE: each channel of queries and keys becomes a 2D vector: magnitude from content, angle from position.

        q[c] -> softplus(q[c]) * (cos(p w_c), sin(p w_c)),     w_c = theta^(-c/d),  c = 0 .. d - 1
        k[c] -> softplus(k[c]) * (cos(p w_c + b[h, c]), sin(p w_c + b[h, c]))

    Each channel contributes softplus(q) softplus(k) cos((p_q - p_k) w_c - b) to q.k. In RoPE the content of a channel
    pair has an angle too, which is added to that of the position; here content and position are separate. Queries and
    keys become twice as wide, values do not; q.k is still scaled by 1/sqrt(d).

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, d; may be odd.
        heads: heads of the model.
        kv_heads: key heads; None: as many as query heads.
        theta: base of the wavelengths.
        init: initial values of the trained phases b, which are clamped to [-2 pi, 0]: `zero`, or `uniform` in that
            interval.
    Raises:
        ValueError: kv_heads that do not divide heads.
    Source: Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534, phases from the code of x-transformers and
        PoPE-pytorch.
    Departs: nowhere. In a call of `attend_encoded`, set scale=1/sqrt(d): its default is computed from the doubled
    width. `attend` uses the width of the head.
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
        init: Literal["zero", "uniform"] = "zero",
    ) -> None:
        super().__init__()
        for name, value in (("head_width", head_width), ("theta", theta)):
            need_positive(name, value)
        groups = resolve_kv_heads(heads, kv_heads)
        self.head_width, self.theta = head_width, theta
        phases = torch.zeros(groups, 1, head_width)
        self.phases = nn.Parameter(phases.uniform_(-2 * math.pi, 0) if init == "uniform" else phases)

    def encode_query(self, q: Queries, pos: Positions) -> EncodedQueries:
        return _polar(q, self.angles(pos)[:, None])

    def encode_key(self, k: Keys, pos: Positions) -> EncodedKeys:
        """Convert the keys to polar form, with the trained phases of each head added to the angles."""
        phases = repeat_for_heads(self.phases, k.shape[1]).clamp(-2 * math.pi, 0)
        return _polar(k, self.angles(pos)[:, None] + in_float64(phases))

    def angles(self, pos: Positions) -> Float[Tensor, "#b n d"]:
        """Return the angle of each channel at each position [radians]."""
        rates = [self.theta ** (-c / self.head_width) for c in range(self.head_width)]
        place = in_float64(pos[..., :1])
        return place * numbers_beside(place, rates, torch.float64)


def _polar(x: Float[Tensor, "b h n d"], angles: Float[Tensor, "#b #h n d"]) -> Float[Tensor, "b h n twice"]:
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (on_device(wave, wide, x.device) for wave in (angles.cos(), angles.sin()))

    def polar(x: Tensor) -> Tensor:
        # float64 where the device has it: in float32 on CPUs, softplus rounds differently in the vectorised part and
        # the tail of a tensor, so a token's result would depend on the other tokens
        # contiguous, since torch.compile takes the gradient of softplus to have the layout of its input, which it has
        # not (PyTorch 2.13)
        magnitude = nn.functional.softplus(x.contiguous().to(widest_float(x.device))).to(wide)
        return torch.cat([magnitude * cos, magnitude * sin], -1).to(x.dtype)

    return by_finite_vectors(polar, x)
