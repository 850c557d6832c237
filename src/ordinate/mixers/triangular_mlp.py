"""Causal MLP-Mixer: token mixing with lower triangular matrices."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need_positive_counts
from ordinate.core.shapes import Tokens
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.ops.gelu import gelu
from ordinate.ops.left_align import padding_counts, roll_left
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class TriangularMlpState(MixerState):
    """Cache of all past tokens.

    Args:
        x: token vectors.
        hidden: hidden activations.
        real: False at padding, which is on the left.
    """

    x: Float[Tensor, "b n width"]
    hidden: Float[Tensor, "b n expansion width"]
    real: Bool[Tensor, "b n"]


class TriangularMlp(SequenceMixer[TriangularMlpState]):
    """Causal MLP-Mixer: its matrices over positions are masked to be lower triangular. Ours.

        h_s = gelu(sum over j <= s of W_1[s, j] x_j + b_1[s]),   y_t = sum over s <= t of W_2[t, s] h_s + b_2[t]

    The weights are shared by all channels. Each position has weights of its own, so the mixer is order-aware without
    a scheme. The cost is that of N x N matrices.

    Args:
        width: columns of the model.
        max_length: longest supported sequence [tokens]; a shorter one uses the first positions.
        expansion: hidden units for each position and channel.

    Raises:
        ValueError: sizes that are not positive integers.
    Source: none; MLP-Mixer is Tolstikhin et al. 2021, equation 1, https://arxiv.org/abs/2105.01601.
    Departs: the causal form is ours. Rows are initialised with variance 1 / (positions they sum over), so that
        outputs have the same scale at all positions; the entries above the diagonal exist and are never used.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    bidirectional = False
    default_scheme = "none"

    def __init__(self, *, width: int, max_length: int, expansion: int = 1) -> None:
        super().__init__()
        need_positive_counts(width=width, max_length=max_length, expansion=expansion)
        self.max_length = max_length
        # not nn.Linear: the model would reinitialise it, with one scale for all rows
        shape = expansion, max_length, max_length
        seen = torch.arange(1, max_length + 1)[:, None]
        self.gather = nn.Parameter(torch.randn(shape) * seen**-0.5)
        self.spread = nn.Parameter(torch.randn(shape) * (expansion * seen) ** -0.5)
        self.gather_bias = nn.Parameter(torch.zeros(expansion, max_length))
        self.spread_bias = nn.Parameter(torch.zeros(max_length))

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: TriangularMlpState | None
    ) -> tuple[Tokens, TriangularMlpState | None]:
        """Apply both triangular matrices, with a GELU between them."""
        read, tokens = 0 if state is None else state.x.shape[1], x.shape[1]
        alike = real is None and state is None
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
        if state is not None:
            x, real = torch.cat([state.x, x], 1), torch.cat([state.real, real], 1)
        # positions are counted from the first token of each row
        before = padding_counts(real[:1] if alike else real)
        place = (torch.arange(read, read + tokens, device=x.device) - before[:, None]).clamp(min=0)
        aligned = x if alike else roll_left(x, before)
        bias = self.gather_bias.to(x.dtype)[:, place].permute(1, 2, 0)[..., None]
        hidden = gelu(torch.einsum("enbt,btw->bnew", _rows(self.gather, place, aligned), aligned) + bias)
        if state is not None:
            hidden = torch.cat([state.hidden, hidden], 1)
        aligned = hidden if alike else roll_left(hidden, before)
        y = torch.einsum("enbt,btew->bnw", _rows(self.spread, place, aligned), aligned)
        return y + self.spread_bias.to(x.dtype)[place][..., None], TriangularMlpState(x, hidden, real)


def _rows(
    matrix: Float[Tensor, "expansion places places"], place: Int[Tensor, "#b n"], x: Float[Tensor, "b t *rest"]
) -> Float[Tensor, "expansion n #b t"]:
    """Rows of the matrix at these positions, 0 above the diagonal."""
    columns = torch.arange(x.shape[1], device=x.device)
    rows = matrix[:, :, : x.shape[1]].to(x.dtype)[:, place.mT]
    return rows.masked_fill(columns > place.mT[..., None], 0.0)
