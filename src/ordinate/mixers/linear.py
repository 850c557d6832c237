"""Linear attention with running sums (Katharopoulos et al., 2020)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import elu, pad

from ordinate.core.shapes import Keys, Outputs, Queries, Tokens, Values
from ordinate.core.tensors import without_autocast
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._projections import AttentionProjections
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.chunks import linear_attention, safe_divide
from ordinate.ops.heads import repeat_keys
from ordinate.schemes._scheme import Placed

Feature = Literal["elu", "relu", "square"]
FEATURES: dict[Feature, Callable[[Tensor], Tensor]] = {
    "elu": lambda x: elu(x).add_(1),
    "relu": torch.relu,
    "square": lambda x: torch.relu(x).square(),
}


@dataclass(frozen=True, eq=False)
class LinearAttentionState(MixerState):
    """Recurrent state of linear attention: one matrix and one vector per head, of constant size.

    Args:
        values: sum of phi(k) v^T.
        keys: sum of phi(k).
    """

    values: Float[Tensor, "b h d e"]
    keys: Float[Tensor, "b h d"]


class LinearAttention(AttentionProjections, SequenceMixer[LinearAttentionState]):
    """Linear attention: a kernel feature map replaces the softmax, at a cost linear in the length.

        y_i = phi(q_i) S_i / (phi(q_i) z_i) W_O,   S_i = sum over j <= i of phi(k_j) v_j^T,   z_i = sum of phi(k_j)
        phi(x) = elu(x) + 1,   [q, k, v] = x W

    In the bidirectional form the sums go over all tokens. A scheme that encodes queries and keys is applied to the
    features in the numerator only, so that the denominator stays a sum of positive numbers.

    Args:
        width: columns of the model.
        heads: query heads; each has width / heads channels.
        kv_heads: key and value heads; None: as many as query heads. Fewer: grouped-query attention.
        feature: feature map phi: `elu` is elu(x) + 1, `relu` is max(x, 0), `square` is max(x, 0)^2.
    Source: Katharopoulos et al. 2020, equations 4 to 7 and 16 to 20, https://arxiv.org/abs/2006.16236; rotated
        features from Su et al. 2021, equation 19, https://arxiv.org/abs/2104.09864; `square` from So et al. 2021.
    Departs: computed in chunks; no epsilon is added to the denominator, and where it is 0 (no visible key, or none
        with a feature of the query) the result is 0. `relu` and `square` in place of elu are ours.
    """

    supported_hooks = frozenset({"encode_query", "encode_key"})
    permutation_equivariant = True

    def __init__(self, *, width: int, heads: int, kv_heads: int | None = None, feature: Feature = "elu") -> None:
        super().__init__(width, heads, kv_heads, dropout=0.0)
        self.feature: Feature = feature

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: LinearAttentionState | None
    ) -> tuple[Tokens, LinearAttentionState | None]:
        """Add keys and values to the sums, and read them with the queries."""
        q, k, v = self.project_qkv(x)
        # running sums in 16 bits would lose small terms
        with without_autocast(x):
            phi, wide = FEATURES[self.feature], torch.promote_types(q.dtype, torch.float32)
            # contiguous, since torch.compile takes the gradient of elu to have the layout of its input
            q_features, k_features = (phi(x.to(wide).contiguous()) for x in (q, k))
            y, state = self._mean(q_features, k_features, v.to(wide), at, real, state)
        return self.out(rearrange(y.to(q.dtype), "b h n d -> b n (h d)")), state

    def _mean(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        at: Placed,
        real: Bool[Tensor, "b n"] | None,
        state: LinearAttentionState | None,
    ) -> tuple[Outputs, LinearAttentionState | None]:
        q_encoded, k_encoded = at.encode(q, k).pair
        unencoded = q_encoded is q and k_encoded is k
        if real is not None:
            k, k_encoded = (key * real[:, None, :, None] for key in (k, k_encoded))
        if q.shape[1] != k.shape[1]:
            k, k_encoded, v = (repeat_keys(key, q.shape[1]) for key in (k, k_encoded, v))
        if not at.where.is_causal:
            return safe_divide(q_encoded @ (k_encoded.mT @ v), (q * k.sum(2, keepdim=True)).sum(-1)), None
        before = LinearAttentionState(
            v.new_zeros(*q.shape[:2], k_encoded.shape[3], v.shape[3]), v.new_zeros(*q.shape[:2], q.shape[3])
        )
        before = before if state is None else state
        if unencoded:
            # numerator and denominator in one pass: a column of ones appended to the values sums the weights
            sums = torch.cat([before.values, before.keys[..., None]], -1)
            out, sums = linear_attention(q, k, pad(v, (0, 1), value=1.0), sums)
            return safe_divide(out[..., :-1], out[..., -1]), LinearAttentionState(sums[..., :-1], sums[..., -1])
        out, values = linear_attention(q_encoded, k_encoded, v, before.values)
        keys = before.keys[:, :, None] + k.cumsum(2)
        return safe_divide(out, (q * keys).sum(-1)), LinearAttentionState(values, before.keys + k.sum(2))
