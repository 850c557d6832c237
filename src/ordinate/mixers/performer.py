"""Attention by random features (FAVOR+)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ordinate.checks import need, need_positive, need_whole
from ordinate.mixer import State
from ordinate.native.performer import performed
from ordinate.native.scan import refuses
from ordinate.ops.chunks import linear_attention
from ordinate.ops.random_features import Features, Levels, exponential_features, orthogonal_directions
from ordinate.ops.ratio import ratio
from ordinate.projections import Projections
from ordinate.scheme import Placed
from ordinate.seeds import seed_of
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values

Kernel = Literal["hyperbolic", "positive", "relu"]
# added to features that may all be 0
FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class Sums(State):
    """What was read, in one matrix a head: its size does not grow.

    Args:
        values: the sum of phi(k) (v, 1)^T, divided by e^peak.
        peak: the highest exponent of a feature of a key so far.
    """

    values: Float[Tensor, "b h m e"]
    peak: Float[Tensor, "b h"]


class Performer(Projections, SequenceMixer[Sums]):
    """Softmax attention on average, at a cost linear in the length: products of random features stand for exp(q k).

        y_i = phi(q_i) S_i / (phi(q_i) z_i) W_O,   S_i = sum over j <= i of phi(k_j) v_j^T,   z_i = sum of phi(k_j)
        hyperbolic: phi(x) = (e^(w x), e^(-w x)) e^(-|x|^2 / 2) for each direction w;   x = q or k, over d^(1/4)

    Where nothing hides the future, the sums go over all tokens. The directions w are orthogonal in blocks of d, drawn
    anew from time to time in training. With m features the error falls as 1 / sqrt(m) while scores are small; for
    large scores it takes far more.

    Args:
        width: columns of the model.
        heads: query heads; each has d = width / heads channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        kernel: `hyperbolic`; `positive`: e^(w x - |x|^2 / 2) alone; `relu`: max(w x, 0) + 0.001, not softmax at all.
        features: m, features of a head; None: 2 d hyperbolic ones, near as exact as the d ln d positive ones of the
            authors' code (at d = 64 as of half that number), or d ln d of another kernel, in whole blocks.
        redraw: after how many passes of training new directions are drawn [forward passes]; None: never.

    Raises:
        ValueError: a number of features that is odd where directions come with their opposites.
    Source: Choromanski et al. 2021, section 2, https://arxiv.org/abs/2009.14794.
    Departs: hyperbolic features by default, with half the error of positive ones at equal m; blocks are uniform
        (Haar), where the authors' QR leans to one side. Each token is divided by the highest exponent among keys so
        far, not by that of all, which let the future through; nothing is added to the denominator.
    """

    honours = frozenset({"encode_query", "encode_key"})
    equivariant = True
    drawn: Int[Tensor, "2"]

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        kernel: Kernel = "hyperbolic",
        features: int | None = None,
        redraw: int | None = 1000,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout=0.0)
        for name, value in (("features", features), ("redraw", redraw)):
            if value is not None:
                need_whole(name, value)
                need_positive(name, value)
        self.kernel: Kernel = kernel
        self.redraw_after, self.passes = redraw, 0
        both = 2 if kernel == "hyperbolic" else 1
        if features is None:
            blocks = 2 if kernel == "hyperbolic" else max(1, round(math.log(self.head_width)))
            features = blocks * self.head_width
        need(
            features % both == 0,
            "hyperbolic features come in pairs",
            f"got {features}",
            "give an even number, or another kernel",
        )
        seed = torch.randint(2**62, (), device="cpu")
        # numbers that a checkpoint must hold for directions to come as they would have
        self.register_buffer("drawn", torch.stack([seed, torch.zeros_like(seed)]))
        self.directions = nn.Parameter(torch.empty(features // both, self.head_width), requires_grad=False)
        self.register_load_state_dict_post_hook(_recall)
        self.redraw()

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw new directions: a function of the seed and of how many passes of training there were."""
        if not self.directions.is_meta:
            generator = torch.Generator().manual_seed(seed_of(int(self.drawn[0]), self.passes))
            self.directions.copy_(orthogonal_directions(len(self.directions), self.head_width, generator))

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Sums | None
    ) -> tuple[Tokens, Sums | None]:
        """Write keys and values into the sums, and read them by queries."""
        if self.training and state is None and not torch.compiler.is_compiling():
            self._count()
        q, k, v = self.project_heads(x)
        q, k = at.encode(q, k)
        # sums in few bits would forget
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(q.dtype, torch.float32)
            y, state = self._mean(q.to(wide), k.to(wide), v.to(wide), at.where.hides_future, real, state)
        return self.out(rearrange(y.to(v.dtype), "b h n d -> b n (h d)")), state

    def _mean(
        self, q: Queries, k: Keys, v: Values, causal: bool, real: Bool[Tensor, "b n"] | None, state: Sums | None
    ) -> tuple[Outputs, Sums | None]:
        if q.shape[1] != k.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        # finite, so that the difference of two is a number
        before = v.new_full(v.shape[:2], torch.finfo(v.dtype).min) if state is None else state.peak
        nothing = (*v.shape[:2], self.features, v.shape[3] + 1)
        sums = v.new_zeros(nothing) if state is None else state.values
        # by chunks whose features stay near, in C++ where there is a compiler: the same to rounding
        if causal and self.kernel != "relu" and refuses("performer", q, k, v, sums, before) is None:
            scale, mirrored = self.head_width**-0.25, self.kernel == "hyperbolic"
            out, *after = performed((q, k, v), self.directions.to(q.dtype), scale, mirrored, real, (sums, before))
            return out, Sums(*after)
        # any factor of a query is in numerator and denominator
        (asked, _), (written, levels) = self._features(q), self._features(k)
        if real is not None:
            levels = levels.masked_fill(~real[:, None], -math.inf)
        peaks = torch.cat([before[..., None], levels.detach()], -1).cummax(-1).values
        # a value of 1 beside the others sums up the weights
        weights = (levels - (peaks[..., 1:] if causal else peaks[..., -1:])).exp()
        v = nn.functional.pad(v, (0, 1), value=1.0) * weights[..., None]
        if not causal:
            out = asked @ (written.mT @ v)
            return ratio(out[..., :-1], out[..., -1]), None
        out, sums = linear_attention(asked, written, v, sums, peaks)
        return ratio(out[..., :-1], out[..., -1]), Sums(sums, peaks[..., -1])

    def _features(self, x: Queries) -> tuple[Features, Levels]:
        directions = self.directions.to(x.dtype)
        if self.kernel == "relu":
            features = torch.relu(x @ directions.mT) + FLOOR
            return features, features.new_zeros(features.shape[:-1])
        # on both sides, so that their product is the scale of attention
        scale = self.head_width**-0.25
        return exponential_features(x, directions, scale=scale, mirrored=self.kernel == "hyperbolic")

    @property
    def features(self) -> int:
        """Features of a head."""
        return self.directions.shape[0] * (2 if self.kernel == "hyperbolic" else 1)

    def _count(self) -> None:
        if self.redraw_after is not None and self.passes and self.passes % self.redraw_after == 0:
            self.redraw()
        self.passes += 1
        self.drawn[1] = self.passes


def _recall(mixer: Performer, _: object) -> None:
    """What a checkpoint counted goes on."""
    mixer.passes = int(mixer.drawn[1])
