"""Forgetting attention (FoX): softmax attention with data-dependent forget gates."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.shapes import Keys, Outputs, Tokens, Values
from ordinate.core.tensors import at_least_float32, in_float64, need_true, without_autocast
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._projections import AttentionMixer
from ordinate.ops.head_norm import rms_norm
from ordinate.ops.key_bias import attended_dtype, with_key_bias
from ordinate.schemes._scheme import Placed

LogGates = Float[Tensor, "b h n"]
# a gate of e^-10000 forgets everything in any dtype; smaller ones would only take digits from later sums
MIN_LOG_GATE = -1e4


@dataclass(frozen=True, eq=False)
class FoxCache(KVCache):
    """KV cache of forgetting attention, whose keys hold the sum of the log gates up to their own.

    Args:
        total: sum of the log gates of the document of the last token, in float64 where the device has it.
    """

    total: Float[Tensor, "b h"] | None = None

    def select_rows(self, rows: Int[Tensor, "rows"]) -> "FoxCache":
        """Select rows of the batch; the result is not a view of the buffer."""
        return FoxCache(self.k[rows], self.v[rows], None, None if self.total is None else self.total[rows])


class ForgettingAttention(AttentionMixer):
    """Forgetting attention (FoX): softmax attention with data-dependent forget gates, without position encoding.

        f_t = sigmoid(x_t W_f + b),   one for each head and token
        y_i = sum over j <= i of softmax_j(q_i k_j^T / sqrt(d) + sum over j < t <= i of log f_t) v_j, times W_O

    With all gates equal it is ALiBi with a learned slope.

    Args:
        width: columns of the model.
        heads: heads; each has its own queries, keys and values of d channels.
        head_width: d; None: width / heads.
        qk_norm: whether queries and keys of each head are RMS-normalised.
        output_gate: whether the output of each head is RMS-normalised and multiplied by sigmoid(x W_g), as in the
            authors' FoX (Pro).
        dropout: dropout probability of the attention weights.
    Source: Lin et al. 2025, Forgetting Transformer, https://arxiv.org/abs/2503.02130, equations 3 to 9, and
        https://github.com/zhixuan-lin/forgetting-transformer, where b is 0 initially.
    Departs: the sum of log gates up to a key is part of the key, so that any attention kernel computes this; a score
        is rounded as a number of the size of that sum. The shift of keys and values of FoX (Pro) is left out.
    """

    supported_hooks = frozenset({"encode_query", "encode_key", "bias"})
    permutation_equivariant = False
    bidirectional = False
    supports_cross_attention = False
    supports_context_parallel = False
    supports_fixed_cache = False
    default_scheme: ClassVar[str] = "none"

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int | None = None,
        qk_norm: bool = False,
        output_gate: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, None, dropout, AttentionOptions(head_width=head_width, qk_norm=qk_norm))
        self.forget = nn.Linear(width, heads)
        nn.init.zeros_(self.forget.bias)
        self.gate = nn.Linear(width, self.widths[0], bias=False) if output_gate else None
        self.norm_scale = nn.Parameter(torch.ones(self.widths[0])) if output_gate else None

    def self_attention(self, x: Tokens, at: Placed, state: KVCache | None) -> tuple[Tokens, KVCache]:
        """Compute self-attention, with the sums of log gates as columns of the keys."""
        before = state.total if isinstance(state, FoxCache) else None
        logits = in_float64(self.forget(x)).mT
        # a token whose gate is not finite has such a key too, which makes later outputs of its document NaN
        logs = logsigmoid(logits.masked_fill(~logits.isfinite(), 0.0))
        sums, total = _summed_gates(logs, at.where, before)
        q, k, v = self.project_qkv(x)
        new = at.encode(self.q_norm(q), self.k_norm(k))
        # the sum up to the query is the same for all its keys, so that the softmax cancels it
        wide = _gradient_dtype(new.k)
        q, k = with_key_bias(new.q, new.k, -sums, self.scale, wide)
        cache = _extended(state, k.to(new.k.dtype), v, total)
        if wide == attended_dtype(new.k):
            return self._projected(self.attention(q, cache.k, cache.v, at, cache.max_key_norm), x), cache
        with without_autocast(x):
            keys = k if state is None else torch.cat([state.k.to(wide), k], 2)
            y = self.attention(q, keys, cache.v.to(wide), at)
        return self._projected(y.to(v.dtype), x), cache

    def _projected(self, y: Outputs, x: Tokens) -> Tokens:
        if self.gate is None or self.norm_scale is None:
            return self.output_projection(y)
        rows = rms_norm(at_least_float32(y)).transpose(1, 2).flatten(2) * self.norm_scale
        return self.out((rows * torch.sigmoid(self.gate(x))).to(x.dtype))


def _gradient_dtype(k: Keys) -> torch.dtype:
    """The dtype of attention: float32 or wider if gradients may be asked for.

    The gradient of a gate is a sum over all later keys, of numbers that nearly cancel. In 16 bits their rounding
    errors would grow with the length, beyond the gradient itself.
    """
    narrow = attended_dtype(k)
    return torch.promote_types(narrow, torch.float32) if torch.is_grad_enabled() else narrow


def _extended(state: KVCache | None, k: Keys, v: Values, total: Float[Tensor, "b h"]) -> FoxCache:
    longer = KVCache(k, v) if state is None else state.append(k, v)
    return FoxCache(longer.k, longer.v, longer.buffer, total)


def _summed_gates(
    logs: LogGates, where: Geometry, before: Float[Tensor, "b h"] | None
) -> tuple[LogGates, Float[Tensor, "b h"]]:
    """Sums of the log gates of each token's document up to the token, and that of the last document.

    Args:
        logs: log gates of the new tokens.
        where: their geometry.
        before: the sum of the past tokens of their document; None: no past.
    """
    logs = logs.clamp(min=MIN_LOG_GATE)
    documents = where.q_document
    begin = logs.new_zeros(logs.shape[:2]) if before is None else before
    if documents is None or not logs.shape[2]:
        sums = logs.cumsum(2) + begin[..., None]
        return sums, sums[..., -1] if logs.shape[2] else begin
    documents = documents.expand(len(logs), -1)
    if before is not None:
        _check_continues(where, documents)
    real = documents != PADDING
    logs = logs * real[:, None]
    # documents one after another, each with a sum of its own
    order = documents.argsort(dim=1, stable=True)
    sums = logs.gather(2, order[:, None].expand_as(logs)).cumsum(2)
    of = documents.gather(1, order)
    place = torch.arange(of.shape[1], device=of.device)
    first = (torch.cat([of[:, :1] != of[:, :1], of[:, 1:] != of[:, :-1]], 1) * place).cummax(1).values
    earlier = torch.nn.functional.pad(sums, (1, 0)).gather(2, first[:, None].expand_as(sums))
    own = (sums - earlier).gather(2, order.argsort(1)[:, None].expand_as(sums)) + begin[..., None]
    newest = (real * (place + 1)).argmax(1)[:, None, None].expand(*own.shape[:2], 1)
    last = own.gather(2, newest)[..., 0]
    return own, torch.where(real.any(1)[:, None], last, begin)


def _check_continues(where: Geometry, documents: Int[Tensor, "b n"]) -> None:
    """Raise unless all new tokens, but for padding, continue the last document of the past, if there is one."""
    past = where.block(slice(None), slice(0, where.start)).k_document
    if past is None:
        return
    past = past.expand(len(documents), -1)
    place = torch.arange(1, past.shape[1] + 1, device=past.device)
    newest = past.gather(1, ((past != PADDING) * place).argmax(1, keepdim=True))
    continues = (documents == newest) | (documents == PADDING) | (newest == PADDING)
    need_true(
        continues.all(),
        "with a cache, all new tokens must continue the last document of the past",
        "got the start of another document in some row",
        "process each document with a cache of its own",
    )
