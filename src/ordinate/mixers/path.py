"""PaTH attention: softmax attention whose position encoding is a product of data-dependent transitions."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.checks import need_positive, need_whole
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32
from ordinate.mixers._mixer import MixerState, check_heads
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._short_convolution import ShortConvolution
from ordinate.ops.head_norm import unit_norm
from ordinate.ops.path_attention import PastKeys, path_attention
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class PathState(MixerState):
    """Cache of PaTH attention.

    Args:
        k: keys of the past tokens, carried through the transitions up to the last one.
        v: values of the past tokens.
        real: False at padding.
        recent: the last inputs of the short convolution.
    """

    k: Float[Tensor, "b h m d"]
    v: Float[Tensor, "b h m d"]
    real: Bool[Tensor, "b m"]
    recent: Float[Tensor, "b reach width"]


class PathAttention(SequenceMixer[PathState]):
    """PaTH attention: between query and key lies a product of data-dependent Householder-like transitions.

        q, k, v = x W_q, x W_k, x W_v;   w = unit(silu(conv(x A A')));   beta = 2 sigmoid(x W_b + b)
        score(i, j) = q_i H_i H_(i-1) .. H_(j+1) k_j^T / sqrt(d),   H_t = I - beta_t w_t^T w_t     (for each head)
        y_i = sum over j <= i of softmax_j(score(i, j)) v_j, times W_O

    RoPE is a product of fixed rotations in place of the H_t. unit(x) = x / |x|, and conv is a causal convolution of
    each channel over the last `taps` tokens.

    Args:
        width: columns of the model.
        heads: heads, each of width / heads channels.
        rank: columns of A, the low-rank projection of the transitions.
        taps: tokens that the short convolution spans, the current one included.
    Source: Yang et al. 2025, PaTH Attention, https://arxiv.org/abs/2505.16381, sections 2 and 3, and the layer of
        https://github.com/fla-org/flash-linear-attention.
    Departs: heads do not share keys; the variant with forget gates (PaTH-FoX) and the norm of queries and keys are
        left out. The filters of the convolution are initialised as those of `torch.nn.Conv1d`.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    bidirectional = False
    default_scheme = "none"

    def __init__(self, *, width: int, heads: int, rank: int = 32, taps: int = 3) -> None:
        super().__init__()
        check_heads(width, heads, heads)
        need_whole("rank", rank)
        need_positive("rank", rank)
        self.heads, self.head_width = heads, width // heads
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.way_in, self.way_out = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.convolution = ShortConvolution(width, taps)
        self.rate = nn.Linear(width, heads)
        self.out = nn.Linear(width, width, bias=False)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: PathState | None
    ) -> tuple[Tokens, PathState | None]:
        """Compute causal attention over the past tokens and these."""
        q, k, v = (self._heads(part) for part in self.project(x).chunk(3, -1))
        mixed, recent = self.convolution(self.way_out(self.way_in(x)), None if state is None else state.recent)
        rates = 2 * torch.sigmoid(at_least_float32(self.rate(x))).mT
        there = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
        past = PastKeys(k[:, :, :0], v[:, :, :0], there[:, :0])
        if state is not None:
            past = PastKeys(state.k, state.v, state.real)
        y, keys = path_attention(q * self.head_width**-0.5, k, v, unit_norm(self._heads(mixed)), rates, past, there)
        values, seen = torch.cat([past.v, v], 2), torch.cat([past.real, there], 1)
        y = self.out(rearrange(y, "b h n d -> b n (h d)").to(x.dtype))
        return y, PathState(keys, values, seen, recent)

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return rearrange(at_least_float32(x), "b n (h d) -> b h n d", h=self.heads)
