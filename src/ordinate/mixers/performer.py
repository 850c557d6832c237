"""Performer: softmax attention approximated by random features (FAVOR+)."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive, need_whole
from ordinate.core.seeds import derive_seed
from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.core.tensors import without_autocast
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._projections import AttentionProjections
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.chunks import linear_attention, safe_divide
from ordinate.ops.double_backward import untraceable
from ordinate.ops.heads import repeat_keys
from ordinate.ops.native.performer import performer_attention
from ordinate.ops.native.scan import unsupported_reason
from ordinate.ops.random_features import Features, Levels, exponential_features, orthogonal_directions
from ordinate.ops.stable_features import stable_feature_attention
from ordinate.schemes._scheme import Placed

Kernel = Literal["hyperbolic", "positive", "relu"]
# added to ReLU features, which may all be 0
RELU_FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class PerformerState(MixerState):
    """Recurrent state: one matrix per head, of constant size.

    Args:
        values: sum of phi(k) (v, 1)^T, divided by e^peak.
        peak: largest exponent of a key feature so far, for a stable running sum: one for all features, or one each.
    """

    values: Float[Tensor, "b h m e"]
    peak: Float[Tensor, "b h peaks"]


class Performer(AttentionProjections, SequenceMixer[PerformerState]):
    """Performer: random features (FAVOR+) whose products estimate exp(q k) without bias, at linear cost.

        y_i = phi(q_i) S_i / (phi(q_i) z_i) W_O,   S_i = sum over j <= i of phi(k_j) v_j^T,   z_i = sum of phi(k_j)
        hyperbolic: phi(x) = (e^(w x), e^(-w x)) e^(-|x|^2 / 2) for each direction w;   x = q or k, over d^(1/4)

    In the bidirectional form the sums go over all tokens. The directions w are orthogonal in blocks of d and redrawn
    periodically in training. With m features the error falls as 1 / sqrt(m) while scores are small; large scores need
    many more features.

    Args:
        width: columns of the model.
        heads: query heads; each has d = width / heads channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        kernel: `hyperbolic`; `positive`: e^(w x - |x|^2 / 2) alone; `relu`: max(w x, 0) + 0.001, not softmax at all.
        features: m, features of a head; None: 2 d hyperbolic ones, nearly as exact as the d ln d positive ones of the
            authors' code (at d = 64 as of half that number), or d ln d of another kernel, in whole blocks.
        redraw: interval at which directions are redrawn in training [forward passes]; None: never.

    Raises:
        ValueError: an odd number of hyperbolic features.
    Source: Choromanski et al. 2021, section 2, https://arxiv.org/abs/2009.14794.
    Departs: hyperbolic features by default, with half the error of positive ones at equal m; blocks are uniform
        (Haar), where the authors' QR is biased. For stability, sums are divided by the largest exponent among the
        keys so far, not among all keys, which would leak the future; no epsilon is added to the denominator. Where
        that underflows, each feature is divided by its own largest exponent (`ordinate.ops.stable_features`).
    """

    supported_hooks = frozenset({"encode_query", "encode_key"})
    permutation_equivariant = True
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
        # seed and forward count, saved in checkpoints: a resumed run redraws the same directions
        self.register_buffer("drawn", torch.stack([seed, torch.zeros_like(seed)]))
        self.directions = nn.Parameter(torch.empty(features // both, self.head_width), requires_grad=False)
        self.register_load_state_dict_post_hook(_restore_count)
        self.redraw()

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw new directions, as a function of the seed and the number of training passes so far."""
        if not self.directions.is_meta:
            generator = torch.Generator().manual_seed(derive_seed(int(self.drawn[0]), self.passes))
            self.directions.copy_(orthogonal_directions(len(self.directions), self.head_width, generator))

    def forward(
        self, x: Tokens, at: Placed, state: PerformerState | None = None
    ) -> tuple[Tokens, PerformerState | None]:
        """Mix the tokens, after new directions are drawn in training when it is time."""
        if self.training and state is None and not torch.compiler.is_compiling():
            self._count()
        return super().forward(x, at, state)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: PerformerState | None
    ) -> tuple[Tokens, PerformerState | None]:
        """Add keys and values to the sums, and read them with the queries."""
        q, k, v = self.project_qkv(x)
        q, k = at.encode(q, k).pair
        # running sums in 16 bits would lose small terms
        with without_autocast(x):
            wide = torch.promote_types(q.dtype, torch.float32)
            y, state = self._mean(q.to(wide), k.to(wide), v.to(wide), at.where.is_causal, real, state)
        return self.out(rearrange(y.to(v.dtype), "b h n d -> b n (h d)")), state

    def _mean(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        causal: bool,
        real: Bool[Tensor, "b n"] | None,
        state: PerformerState | None,
    ) -> tuple[Outputs, PerformerState | None]:
        if q.shape[1] != k.shape[1]:
            k, v = (repeat_keys(x, q.shape[1]) for x in (k, v))
        if state is None:
            # the smallest finite number, not -inf: the difference of two peaks must not be NaN
            lowest = v.new_full((*v.shape[:2], 1), torch.finfo(v.dtype).min)
            state = PerformerState(v.new_zeros(*v.shape[:2], self.features, v.shape[3] + 1), lowest)
        if self.kernel == "relu" or untraceable(q) is None:
            out, after, total = self._by_one_peak(q, k, v, causal, real, state)
            if not self._underflows(total, real):
                return out, after if causal else None
        return self._by_peaks(q, k, v, causal, real, state)

    def _underflows(self, total: Float[Tensor, "b h n"], real: Bool[Tensor, "b n"] | None) -> bool:
        """Whether a row has lost terms: its denominator is so small that those below the range could weigh."""
        if self.kernel == "relu" or torch.compiler.is_compiling():
            return False
        low = total < torch.finfo(total.dtype).tiny / torch.finfo(total.dtype).eps ** 2
        return bool((low if real is None else low & real[:, None]).any())

    def _by_peaks(
        self, q: Queries, k: Keys, v: Values, causal: bool, real: Bool[Tensor, "b n"] | None, state: PerformerState
    ) -> tuple[Outputs, PerformerState | None]:
        """Slow form, with a peak of each feature, for queries and keys so far apart that one peak is not enough."""
        q, k = (self._logs(x) for x in (q, k))
        if real is not None:
            k = k.masked_fill(~real[:, None, :, None], -math.inf)
        v, peaks = nn.functional.pad(v, (0, 1), value=1.0), state.peak.expand(*k.shape[:2], k.shape[3])
        out, sums, peaks = stable_feature_attention(q, k, v, state.values, peaks, causal=causal)
        return safe_divide(out[..., :-1], out[..., -1]), PerformerState(sums, peaks) if causal else None

    def _by_one_peak(
        self, q: Queries, k: Keys, v: Values, causal: bool, real: Bool[Tensor, "b n"] | None, state: PerformerState
    ) -> tuple[Outputs, PerformerState, Float[Tensor, "b h n"]]:
        """Fast form, with one peak for all features; the denominators of the rows too."""
        before, sums = state.peak.amax(-1), state.values
        if state.peak.shape[-1] > 1:
            sums = sums * (state.peak - before[..., None]).exp()[..., None]
        # C++ kernel, chunk by chunk with features in cache; the same result up to rounding
        if causal and self.kernel != "relu" and unsupported_reason("performer", q, k, v, sums, before) is None:
            scale, mirrored = self.head_width**-0.25, self.kernel == "hyperbolic"
            plain = partial(self._by_features, causal=True, real=real, before=before)
            out, sums, peak, shares = performer_attention(
                (q, k, v), self.directions.to(q.dtype), scale, mirrored, real, (sums, before), plain
            )
            # 0 stands for the inverse of a denominator that underflowed
            total = shares.reciprocal().masked_fill(shares == 0, 0.0)
        else:
            out, sums, peak, total = self._by_features(q, k, v, sums, causal=causal, real=real, before=before)
        return out, PerformerState(sums, peak[..., None]), total

    def _by_features(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        sums: Float[Tensor, "b h m columns"],
        *,
        causal: bool,
        real: Bool[Tensor, "b n"] | None,
        before: Float[Tensor, "b h"],
    ) -> tuple[Outputs, Float[Tensor, "b h m columns"], Float[Tensor, "b h"], Float[Tensor, "b h n"]]:
        # the level of a query cancels: it is a factor of numerator and denominator
        (q_features, _), (k_features, levels) = self._features(q), self._features(k)
        if real is not None:
            levels = levels.masked_fill(~real[:, None], -math.inf)
        peaks = torch.cat([before[..., None], levels.detach()], -1).cummax(-1).values
        # numerator and denominator in one pass: a column of ones appended to the values sums the weights
        weights = (levels - (peaks[..., 1:] if causal else peaks[..., -1:])).exp()
        v = nn.functional.pad(v, (0, 1), value=1.0) * weights[..., None]
        if not causal:
            out = q_features @ (k_features.mT @ v)
            return safe_divide(out[..., :-1], out[..., -1]), sums, before, out[..., -1].detach()
        out, sums = linear_attention(q_features, k_features, v, sums, peaks)
        return safe_divide(out[..., :-1], out[..., -1]), sums, peaks[..., -1], out[..., -1].detach()

    def _features(self, x: Queries) -> tuple[Features, Levels]:
        directions = self.directions.to(x.dtype)
        if self.kernel == "relu":
            features = torch.relu(x @ directions.mT) + RELU_FLOOR
            return features, features.new_zeros(features.shape[:-1])
        # applied to q and to k: together the attention scale d^(-1/2)
        scale = self.head_width**-0.25
        return exponential_features(x, directions, scale=scale, mirrored=self.kernel == "hyperbolic")

    def _logs(self, x: Queries) -> Features:
        """Logarithms of the features."""
        scaled = x * self.head_width**-0.25
        products = scaled @ self.directions.to(x.dtype).mT
        products = torch.cat([products, -products], -1) if self.kernel == "hyperbolic" else products
        return products - scaled.square().sum(-1, keepdim=True) / 2

    @property
    def features(self) -> int:
        """Number of random features of a head."""
        return self.directions.shape[0] * (2 if self.kernel == "hyperbolic" else 1)

    def _count(self) -> None:
        if self.redraw_after is not None and self.passes and self.passes % self.redraw_after == 0:
            self.redraw()
        self.passes += 1
        self.drawn[1] = self.passes


def _restore_count(mixer: Performer, _: object) -> None:
    """Restore the count of forward passes from a loaded checkpoint."""
    mixer.passes = int(mixer.drawn[1])
