"""Base class of the DeltaNet mixers: projections, short convolution, delta rule and output norm."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_fraction, need_positive_counts
from ordinate.core.shapes import Queries, Tokens
from ordinate.core.tensors import at_least_float32
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._short_convolution import ShortConvolution, check_activation
from ordinate.ops.activation import ACTIVATIONS, Activation
from ordinate.ops.delta_rule import gated_delta_rule
from ordinate.ops.head_norm import head_norm, unit_norm
from ordinate.ops.heads import repeat_keys
from ordinate.ops.native.recurrence import Matrices
from ordinate.ops.scalar_decay import LogDecays
from ordinate.ops.shift import bidirectional
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class DeltaRuleState(MixerState):
    """Recurrent state of a DeltaNet, of constant size.

    Args:
        recent: the last projected inputs, as many as the short convolution looks back.
        matrices: matrix-valued state of each head.
    """

    recent: Float[Tensor, "b reach channels"]
    matrices: Matrices


@dataclass(frozen=True)
class DeltaRuleSizes:
    """Sizes and options of a DeltaNet.

    Args:
        width: columns of the model.
        heads: heads.
        key_width: channels of the queries and keys of a head.
        value_width: channels of the values of a head.
        taps: tokens that the short convolution spans.
        gate: whether the output is multiplied by a gate.
        negative_eigenvalues: whether the share beta that a value replaces is twice a sigmoid.
        key_heads: heads of queries and keys, each shared by as many heads; None: as many as heads.
        norm_eps: epsilon of the norm of each head.
        activation: function behind the short convolution.
        gate_rank: columns of a low-rank projection of the gate; None: its projection has full rank.
        gate_activation: function of the gate.
    """

    width: int
    heads: int
    key_width: int
    value_width: int
    taps: int
    gate: bool
    negative_eigenvalues: bool
    key_heads: int | None = None
    norm_eps: float = 1e-5
    activation: Activation = "silu"
    gate_rank: int | None = None
    gate_activation: Activation = "silu"

    def __post_init__(self) -> None:
        sizes = ("width", "heads", "key_width", "value_width")
        need_positive_counts(**{name: getattr(self, name) for name in sizes})
        need_fraction("norm_eps", self.norm_eps)
        check_activation(self.activation)
        need(
            self.heads % self.query_heads == 0,
            "key_heads must divide heads",
            f"got {self.key_heads} and {self.heads}",
            "choose a number that does",
        )

    @property
    def query_heads(self) -> int:
        """Heads of queries and keys."""
        return self.heads if self.key_heads is None else self.key_heads


class DeltaRuleMixer(SequenceMixer[DeltaRuleState]):
    """Linear attention whose state is updated by the delta rule.

        q, k = unit(silu(conv(x W_q))), unit(silu(conv(x W_k)));   v = silu(conv(x W_v));   beta = sigmoid(x W_b)
        S_t = (I - beta_t k_t^T k_t) diag(e^{w_t}) S_{t-1} + beta_t k_t^T v_t;   y_t = q_t S_t / sqrt(d)
        out = W_o (RMS norm of each head(y) * f(x W_g))

    May: define `log_decay`.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, sizes: DeltaRuleSizes) -> None:
        super().__init__()
        keys, values = sizes.query_heads * sizes.key_width, sizes.heads * sizes.value_width
        self.sizes, self.widths = sizes, [keys, keys, values]
        self.project = nn.Linear(sizes.width, sum(self.widths), bias=False)
        self.convolution = ShortConvolution(sum(self.widths), sizes.taps, activation=ACTIVATIONS[sizes.activation])
        self.rate = nn.Linear(sizes.width, sizes.heads, bias=False)
        self.gate = projection(sizes.width, values, sizes.gate_rank) if sizes.gate else None
        self.norm_scale = nn.Parameter(torch.ones(sizes.value_width))
        self.out = nn.Linear(values, sizes.width, bias=False)

    def log_decay(self, x: Tokens) -> LogDecays | Queries | None:
        """Return the log decay of each head, or channel of its keys, and token; None: the state does not decay."""
        return None

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: DeltaRuleState | None
    ) -> tuple[Tokens, DeltaRuleState | None]:
        """Run forwards, or in the bidirectional form in both directions."""
        # padding is 0 and on the left, its keys and values are 0: the state stays 0 until the first token
        if at.where.is_causal:
            return self._read(x, state)
        return bidirectional(lambda x: self._read(x, None)[0], x, real), None

    def _read(self, x: Tokens, state: DeltaRuleState | None) -> tuple[Tokens, DeltaRuleState]:
        mixed, recent = self.convolution(self.project(x), None if state is None else state.recent)
        asked = self.sizes.query_heads, self.sizes.query_heads, self.sizes.heads
        q, k, v = (
            rearrange(at_least_float32(part), "b n (h d) -> b h n d", h=heads)
            for part, heads in zip(mixed.split(self.widths, -1), asked, strict=True)
        )
        q, k = (repeat_keys(unit_norm(part), self.sizes.heads) for part in (q, k))
        rates = torch.sigmoid(at_least_float32(self.rate(x))).mT
        if self.sizes.negative_eigenvalues:
            rates = 2 * rates
        start = q.new_zeros(*v.shape[:2], q.shape[3], v.shape[3]) if state is None else state.matrices
        y, matrices = gated_delta_rule(q * q.shape[3] ** -0.5, k, v, rates, self.log_decay(x), start)
        gate = None if self.gate is None else self.gate(x)
        y = head_norm(y, self.norm_scale, gate, self.sizes.norm_eps, ACTIVATIONS[self.sizes.gate_activation])
        return self.out(y.to(x.dtype)), DeltaRuleState(recent, matrices)


def projection(width: int, columns: int, rank: int | None = None) -> nn.Linear | nn.Sequential:
    """Return a linear layer without a bias; of low rank, two of them, one behind the other."""
    if rank is None:
        return nn.Linear(width, columns, bias=False)
    return nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, columns, bias=False))
