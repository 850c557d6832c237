"""DAPE: softmax attention whose position bias is adapted to the scores of all heads (Zheng et al., 2024)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from ordinate.attention.kv_buffer import MaxKeyNorm
from ordinate.core.checks import need_positive, need_whole
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias, Keys, Outputs, Queries, Values
from ordinate.core.tensors import in_float64, on_device
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._projections import AttentionMixer
from ordinate.ops.distance import distance
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.schemes._scheme import Placed, Scheme


class DapeAttention(AttentionMixer):
    """DAPE: softmax attention whose position bias is adapted to the scores of all heads by a small network.

        S(h, i, j) = q_i k_j^T / sqrt(d),   B(h, i, j) = -p_h log(1 + a_h |p_i - p_j|)
        f(x) = W_2 leaky_relu(W_1 x + b_1) + b_2
        y_i = sum over j of softmax_j(S + B + f([S, B])) v_j, times W_O

    f is applied to each pair of tokens: its input are the scores and the biases of all heads, its output is one
    number for each head. So a head can attend far where the content fits, and near elsewhere. It is a mixer and not
    a scheme because a scheme acts on each head by itself.

    Args:
        width: columns of the model.
        heads: query heads; each has d channels.
        kv_heads: key and value heads; None: as many as query heads.
        head_width: d; None: width / heads.
        hidden: width of the hidden layer of f.
        dropout: dropout probability of the attention weights.
    Source: Zheng et al. 2024, DAPE, https://arxiv.org/abs/2405.14722, section 3, with the prior B of KERPLE, the main
        variant of the paper, and its hidden width of 32.
    Departs: p and a are trained as logarithms; they are drawn as KERPLE draws them, uniformly up to 2 and 1. Masked
        pairs enter f as scores of 0 and get no gradient. The weights of f are initialised as those of every linear
        layer of the model.
    """

    supported_hooks = frozenset({"encode_query", "encode_key"})
    permutation_equivariant = False
    supports_cross_attention = False
    supports_context_parallel = False
    default_scheme = "none"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        hidden: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, kv_heads, dropout, AttentionOptions(head_width=head_width))
        need_whole("hidden", hidden)
        need_positive("hidden", hidden)
        self.adapted = _AdaptedBias(heads, hidden, self.scale)

    def attention(self, q: Queries, k: Keys, v: Values, at: Placed, longest: MaxKeyNorm | None = None) -> Outputs:
        """Attention output of each head, with the adapted bias."""
        return super().attention(q, k, v, self.adapted.at(at.where))


class _AdaptedBias(Scheme):
    """The prior B as a bias, and f of scores and prior as a bias that depends on content."""

    axes = (1, 2, 3)
    shift_invariant = True

    def __init__(self, heads: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        # as logarithms, so that both stay positive; far from 0, whose logarithm is infinite
        self.log_p, self.log_a = (nn.Parameter((most * torch.rand(heads)).clamp(min=0.01).log()) for most in (2, 1))
        self.inner, self.outer = nn.Linear(2 * heads, hidden), nn.Linear(hidden, heads)

    def bias(self, where: Geometry) -> Bias:
        far = distance(where.offset, dtype=torch.float64)[:, None]
        p, a = (in_float64(x).exp()[:, None, None] for x in (self.log_p, self.log_a))
        made = -p * torch.log1p(a * far)
        return on_device(made, torch.promote_types(self.log_p.dtype, torch.float32), where.q_pos.device)

    def content_bias(self, q: Queries, k: Keys, where: Geometry) -> Bias:
        wide = torch.promote_types(q.dtype, torch.float32)
        scores = q.to(wide) @ k.to(wide).mT * self.scale
        if not where.is_unmasked:
            # before f: what masked keys contain, NaN included, reaches neither f nor its gradients
            scores = scores.masked_fill(~where.visible[:, None], 0.0)
        prior = self.bias(where).to(wide).expand_as(scores)
        return _each_pair(leaky_relu(_each_pair(torch.cat([scores, prior], 1), self.inner)), self.outer)


def _each_pair(x: Float[Tensor, "b inputs i j"], layer: nn.Module) -> Float[Tensor, "b outputs i j"]:
    weight, bias = weight_and_bias(layer)
    made = (weight.to(x.dtype) @ x.flatten(2)).unflatten(2, x.shape[2:])
    return made if bias is None else made + bias.to(x.dtype)[:, None, None]
