"""Kimi Delta Attention (KDA): the delta rule with a data-dependent decay of each channel of the keys."""

from collections.abc import Mapping
from typing import Any

from ordinate.core.checks import need_positive_counts
from ordinate.core.shapes import Queries, Tokens
from ordinate.mixers._delta_rule import DeltaRuleMixer, DeltaRuleSizes, projection
from ordinate.mixers._mixer import check_heads
from ordinate.mixers._step_decay import StepDecay
from ordinate.ops.activation import Activation


class KimiDeltaAttention(DeltaRuleMixer):
    """Kimi Delta Attention (KDA): the delta rule with a data-dependent decay of each channel of the keys.

        q, k = unit(silu(conv(x W_q))), unit(silu(conv(x W_k)));   v = silu(conv(x W_v));   beta = sigmoid(x W_b)
        w = -e^a softplus(x A A' + b)                           (log decay of each channel; a is one number a head)
        S_t = (I - beta_t k_t^T k_t) diag(e^{w_t}) S_{t-1} + beta_t k_t^T v_t;   y_t = q_t S_t / sqrt(d)
        out = W_o (RMS norm of each head(y) * sigmoid(x G G'))

    unit(x) = x / |x|, and conv is a causal convolution of each channel over the last `taps` tokens.

    Args:
        width: columns of the model.
        heads: heads.
        head_dim: channels of a head's queries, keys and values, d; None: width / heads.
        taps: tokens that the short convolution spans, the current one included.
        rank: columns of A and of G, the low-rank projections of the decay and of the gate; None: d, as published.
        negative_eigenvalues: whether beta = 2 sigmoid(x W_b), with which a state can change its sign.
        norm_eps: epsilon of the norm of each head.
        activation: function behind the short convolution.
    Raises:
        ValueError: sizes that are not positive, heads that do not divide the width where head_dim is not given, an
            epsilon outside of 0 to 1, or an activation that is unknown or does not take 0 to 0.
    Source: Kimi Team 2025, Kimi Linear, https://arxiv.org/abs/2510.26692, section 3, and the module
        `KimiLinearDeltaAttention` of transformers, version 5, with its initialisation: e^a uniform between 1 and 16,
        and b so that softplus(b) is log-uniform between 0.001 and 0.1.
    Departs: the filters of the convolution are initialised as those of `torch.nn.Conv1d`. Negative eigenvalues are
        those of `deltanet`. The bidirectional form (our extension) runs in both directions with the same weights and
        adds the two results.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_dim: int | None = None,
        taps: int = 4,
        rank: int | None = None,
        negative_eigenvalues: bool = False,
        norm_eps: float = 1e-5,
        activation: Activation = "silu",
    ) -> None:
        need_positive_counts(width=width, heads=heads)
        if head_dim is None:
            check_heads(width, heads, heads)
        size = width // heads if head_dim is None else head_dim
        rank = size if rank is None else rank
        need_positive_counts(head_dim=size, rank=rank)
        own = width, heads, size, size, taps, True, negative_eigenvalues, None, norm_eps, activation
        super().__init__(DeltaRuleSizes(*own, gate_rank=rank, gate_activation="sigmoid"))
        self.step = projection(width, heads * size, rank)
        self.decay = StepDecay(heads, (1.0, 16.0), channels=size)

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, with the channels of a head and the columns of the low-rank projections."""
        size = options["width"] // options["heads"] if options["head_dim"] is None else options["head_dim"]
        return {**options, "head_dim": size, "rank": size if options["rank"] is None else options["rank"]}

    def log_decay(self, x: Tokens) -> Queries:
        """Return the log decay of each channel of the keys of each head, and token."""
        return self.decay(self.step(x).unflatten(-1, (self.sizes.heads, -1)))[1]
