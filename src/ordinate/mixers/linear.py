"""Linear attention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import elu, pad

from ordinate.mixer import State
from ordinate.ops.chunks import linear_attention
from ordinate.ops.ratio import ratio
from ordinate.projections import Projections
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Keys, Outputs, Queries, Tokens, Values

Feature = Literal["elu", "relu", "square"]
FEATURES: dict[Feature, Callable[[Tensor], Tensor]] = {
    "elu": lambda x: elu(x).add_(1),
    "relu": torch.relu,
    "square": lambda x: torch.relu(x).square(),
}


@dataclass(frozen=True, eq=False)
class Sums(State):
    """What was read, in one matrix a head: its size does not grow.

    Args:
        values: the sum of phi(k) v^T.
        keys: the sum of phi(k).
    """

    values: Float[Tensor, "b h d e"]
    keys: Float[Tensor, "b h d"]


class LinearAttention(Projections, SequenceMixer[Sums]):
    """Attention without exponentials: sums over the past are kept in its place, at a cost linear in its length.

        y_i = phi(q_i) S_i / (phi(q_i) z_i) W_O,   S_i = sum over j <= i of phi(k_j) v_j^T,   z_i = sum of phi(k_j)
        phi(x) = elu(x) + 1,   [q, k, v] = x W

    Where nothing hides the future, the sums go over all tokens. A scheme that marks queries and keys marks the
    features in the numerator; the denominator is a sum of positive numbers and stays one.

    Args:
        width: columns of the model.
        heads: query heads; each has width / heads channels.
        kv_heads: heads of keys and values; None: as many as query heads. Fewer are shared by groups.
        feature: phi: `elu` is elu(x) + 1, `relu` is max(x, 0), `square` is max(x, 0)^2.
    Source: Katharopoulos et al. 2020, equations 4 to 7 and 16 to 20, https://arxiv.org/abs/2006.16236; rotated
        features from Su et al. 2021, equation 19, https://arxiv.org/abs/2104.09864; `square` from So et al. 2021.
    Departs: computed by chunks; no small number is added to the denominator, and where it is 0 (a query that sees
        nothing, or no key with a feature of its own) the result is 0. `relu` and `square` in place of elu are ours.
    """

    honours = frozenset({"encode_query", "encode_key"})
    equivariant = True

    def __init__(self, *, width: int, heads: int, kv_heads: int | None = None, feature: Feature = "elu") -> None:
        super().__init__(width, heads, kv_heads, dropout=0.0)
        self.feature: Feature = feature

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Sums | None
    ) -> tuple[Tokens, Sums | None]:
        """Write keys and values into the sums, and read them by queries."""
        q, k, v = self.project_heads(x)
        # sums in few bits would forget
        with torch.autocast(x.device.type, enabled=False):
            phi, wide = FEATURES[self.feature], torch.promote_types(q.dtype, torch.float32)
            y, state = self._mean(phi(q.to(wide)), phi(k.to(wide)), v.to(wide), at, real, state)
        return self.out(rearrange(y.to(q.dtype), "b h n d -> b n (h d)")), state

    def _mean(
        self, q: Queries, k: Keys, v: Values, at: Placed, real: Bool[Tensor, "b n"] | None, state: Sums | None
    ) -> tuple[Outputs, Sums | None]:
        asked, marked = at.encode(q, k)
        unmarked = asked is q and marked is k
        if real is not None:
            k, marked = (key * real[:, None, :, None] for key in (k, marked))
        if q.shape[1] != k.shape[1]:
            k, marked, v = (key.repeat_interleave(q.shape[1] // key.shape[1], 1) for key in (k, marked, v))
        if not at.where.hides_future:
            return ratio(asked @ (marked.mT @ v), (q * k.sum(2, keepdim=True)).sum(-1)), None
        before = Sums(v.new_zeros(*q.shape[:2], marked.shape[3], v.shape[3]), v.new_zeros(*q.shape[:2], q.shape[3]))
        before = before if state is None else state
        if unmarked:
            # a value of 1 beside the others sums up the weights
            sums = torch.cat([before.values, before.keys[..., None]], -1)
            out, sums = linear_attention(q, k, pad(v, (0, 1), value=1.0), sums)
            return ratio(out[..., :-1], out[..., -1]), Sums(sums[..., :-1], sums[..., -1])
        out, values = linear_attention(asked, marked, v, before.values)
        keys = before.keys[:, :, None] + k.cumsum(2)
        return ratio(out, (q * keys).sum(-1)), Sums(values, before.keys + k.sum(2))
