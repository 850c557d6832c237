"""Token mixing of MLP-Mixer: an MLP along the sequence (Tolstikhin et al., 2021)."""

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from ordinate.core.checks import need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.gelu import gelu
from ordinate.ops.left_align import padding_counts, roll_left
from ordinate.schemes._scheme import Placed


class MlpMixer(SequenceMixer[MixerState]):
    """Token mixing of MLP-Mixer: a two-layer MLP over positions, applied to each channel separately.

        y = (W_2 gelu(W_1 x + b_1) + b_2),   W_1: hidden x positions,   W_2: positions x hidden

    The weights are shared by all channels. Each position has weights of its own, so the mixer is order-aware without
    a scheme. Every position reaches every other, so there is no causal form; `triangular_mlp` is a causal variant of
    ours.

    Args:
        width: columns of the model.
        max_length: longest supported sequence [tokens]; a shorter one uses the first positions.
        hidden: rows of W_1; None: half of the width, as in the paper.

    Raises:
        ValueError: sizes that are not positive integers.
    Source: Tolstikhin et al. 2021, equation 1, https://arxiv.org/abs/2105.01601. The norm and the residual connection
        are the block's.
    Departs: a sequence may be shorter than max_length; it then uses the first columns of W_1 and the first rows of
        W_2, and padding is left out.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    causal = False
    supports_cache = False
    default_scheme = "none"

    def __init__(self, *, width: int, max_length: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = max(1, width // 2) if hidden is None else hidden
        need_positive_counts(width=width, max_length=max_length, hidden=hidden)
        self.max_length = max_length
        # not nn.Linear: the model would reinitialise it, with a scale too small for a matrix over positions
        self.gather, self.gather_bias = _matrix(hidden, max_length), nn.Parameter(torch.zeros(hidden))
        self.spread, self.spread_bias = _matrix(max_length, hidden), nn.Parameter(torch.zeros(max_length))

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: MixerState | None
    ) -> tuple[Tokens, MixerState | None]:
        """Apply the MLP along the sequence."""
        tokens, before = x.shape[1], None if real is None else padding_counts(real)
        # positions are counted from the first token of each row; padding is 0
        x = x if before is None else roll_left(x, before)
        gather, spread, gather_bias, spread_bias = (
            parameter.to(x.dtype) for parameter in (self.gather, self.spread, self.gather_bias, self.spread_bias)
        )
        hidden = gelu(gather[:, :tokens] @ x + gather_bias[:, None])
        y = spread[:tokens] @ hidden + spread_bias[:tokens, None]
        return y if before is None else roll_left(y, -before), None


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))
