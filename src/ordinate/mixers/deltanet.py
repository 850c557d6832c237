"""DeltaNet: linear attention whose state is updated by the delta rule."""

from ordinate.mixers._delta_rule import DeltaRuleMixer, DeltaRuleSizes
from ordinate.mixers._mixer import check_heads


class DeltaNet(DeltaRuleMixer):
    """DeltaNet: linear attention with the delta rule, which replaces what is stored at a key instead of adding to it.

        q, k = unit(silu(conv(x W_q))), unit(silu(conv(x W_k)));   v = silu(conv(x W_v));   beta = sigmoid(x W_b)
        S_t = (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t;   y_t = q_t S_t / sqrt(d)     (for each head)
        out = W_o (RMS norm of each head(y))

    unit(x) = x / |x|, and conv is a causal convolution of each channel over the last `taps` tokens.

    Args:
        width: columns of the model.
        heads: heads, each of width / heads channels.
        taps: tokens that the short convolution spans, the current one included.
        gate: whether the output is multiplied by silu(x W_g), as in the gated DeltaNet.
        negative_eigenvalues: whether beta = 2 sigmoid(x W_b), with which a state can change its sign.
    Source: Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule over Sequence Length,
        https://arxiv.org/abs/2406.06484, section 3 and the layer of
        https://github.com/fla-org/flash-linear-attention; the delta rule from Schlag et al. 2021,
        https://arxiv.org/abs/2102.11174; negative eigenvalues from Grazzi et al. 2024,
        https://arxiv.org/abs/2411.12537.
    Departs: the filters of the convolution are initialised as those of `torch.nn.Conv1d`. The bidirectional form (our
        extension) runs in both directions with the same weights and adds the two results.
    """

    def __init__(
        self, *, width: int, heads: int, taps: int = 4, gate: bool = False, negative_eigenvalues: bool = False
    ) -> None:
        check_heads(width, heads, heads)
        size = width // heads
        super().__init__(DeltaRuleSizes(width, heads, size, size, taps, gate, negative_eigenvalues))
