"""xPos: extrapolatable rotary position embedding (Sun et al., 2022)."""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import Keys, Positions, Queries
from ordinate.core.tensors import in_float64, need_true
from ordinate.ops.rotate import Layout, Rotation
from ordinate.schemes._scheme import Encoder, Scheme

# beyond, all powers are 1 up to rounding
MOST_GAMMA = 1e7
# limits of the logarithm of zeta's powers: 2^64 leaves float32 (max 2^128) headroom for q and k, 2^12 float16
MAX_LOG, MAX_LOG_16 = 64 * math.log(2), 12 * math.log(2)


class Xpos(Scheme):
    """xPos: RoPE whose channel pairs decay exponentially with distance in q.k.

        q[m] -> zeta_m^((p - centre)/base) * rotated q[m],    k[m] -> zeta_m^(-(p - centre)/base) * rotated k[m]
        zeta_m = (2m/d + gamma)/(1 + gamma),  m = 0 .. d/2 - 1

    In q.k the centre cancels, and the factor is zeta_m^((p_q - p_k)/base): high-frequency pairs decay within some
    hundred tokens, low-frequency ones hardly at all. For future keys the factor grows instead: the scheme is designed
    for causal attention.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, d.
        theta: base of the wavelengths of the rotation.
        scale_base: distance over which a pair decays by the factor zeta_m, base [tokens].
        gamma: offset in zeta_m: the smaller, the faster high-frequency pairs decay.
        centre: position with factor 1 [tokens]. It is fixed, so that encoded keys can be cached.
        layout: which channels form a pair, `half` or `interleaved` as in rope.
    Raises:
        ValueError: an odd head width, or positions so far from the centre that the powers could overflow: more than
            64 ln 2 * base / ln(1 + 1/gamma) tokens, 18 130 as a rule; with float16 queries 3 399.
    Source: Sun et al. 2022, A Length-Extrapolatable Transformer, section 3, https://arxiv.org/abs/2212.10554, with
        the constants of its published code.
    Departs: the centre is fixed; the published code takes the middle of each call, which is wrong for cached keys.
        Powers in float64.
    """

    shift_invariant = True
    citation = """@article{sun2022length,
  title = {A Length-Extrapolatable Transformer},
  author = {Sun, Yutao and Dong, Li and Patra, Barun and Ma, Shuming and Huang, Shaohan and Benhaim, Alon and
            Chaudhary, Vishrav and Song, Xia and Wei, Furu},
  journal = {arXiv preprint arXiv:2212.10554},
  year = {2022},
  url = {https://arxiv.org/abs/2212.10554}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        theta: float = 10_000.0,
        scale_base: float = 512.0,
        gamma: float = 0.4,
        centre: float = 0.0,
        layout: Layout = "half",
    ) -> None:
        super().__init__()
        for name, value in (("theta", theta), ("scale_base", scale_base), ("gamma", gamma)):
            need_positive(name, value)
        must = f"gamma must be at most {MOST_GAMMA:g}: beyond, all powers are 1 up to rounding"
        need(gamma <= MOST_GAMMA, must, f"got {gamma:g}", "use rope, or give less")
        even = head_width > 0 and head_width % 2 == 0
        need(
            even,
            "xpos needs an even head width",
            f"got head_width {head_width}",
            "choose heads that divide width evenly",
        )
        self.head_width, self.theta, self.scale_base, self.layout = head_width, theta, scale_base, layout
        self.gamma, self.centre = gamma, centre
        reach = self.reach(MAX_LOG)
        need(
            0 <= centre <= reach,
            f"centre must lie in [0, {reach:.0f}], so that position 0 is supported",
            f"got {centre}",
            "leave it out, or raise scale_base",
        )
        self.max_length = math.floor(centre + reach) + 1

    def reach(self, max_log: float) -> float:
        """Return the distance from the centre within which the log of each power is below `max_log` [tokens]."""
        return max_log * self.scale_base / math.log(1 + 1 / self.gamma)

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        return self.make_encoders(pos)[0](q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        return self.make_encoders(pos)[1](k)

    def make_encoders(self, pos: Positions) -> tuple[Encoder, Encoder]:
        """Return the scaled rotations of queries and of keys."""
        waves = (self.waves(pos, sign) for sign in (1, -1))
        rotations = (Rotation(cos[:, None], sin[:, None], self.layout) for cos, sin in waves)
        of_q, of_k = (partial(self._turn, pos, rotation) for rotation in rotations)
        return of_q, of_k

    def waves(self, pos: Positions, sign: int) -> tuple[Float[Tensor, "#b n pairs"], Float[Tensor, "#b n pairs"]]:
        """Return cosines and sines of each pair at each position, scaled for queries (sign 1) or keys (-1)."""
        pairs, d = range(self.head_width // 2), self.head_width
        speeds = [self.theta ** (-2 * m / d) for m in pairs]
        fading = [math.log((2 * m / d + self.gamma) / (1 + self.gamma)) / self.scale_base for m in pairs]
        place = in_float64(pos[..., :1])
        angles = place * numbers_beside(place, speeds, torch.float64)
        powers = (place - self.centre) * numbers_beside(place, fading, torch.float64)
        scale = (sign * powers).exp()
        return angles.cos() * scale, angles.sin() * scale

    def _turn(self, pos: Positions, rotation: Rotation, x: Queries) -> Queries:
        if x.dtype == torch.float16 and pos.numel():
            far, reach = (in_float64(pos) - self.centre).abs().max(), self.reach(MAX_LOG_16)
            need_true(
                far <= reach,
                f"in float16 xpos supports positions up to {reach:.0f} tokens from its centre {self.centre:g}",
                lambda: f"got {far.item():g}",
                "use bfloat16 or float32, or raise scale_base",
            )
        return rotation(x)
