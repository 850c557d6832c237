"""Mixing by two triangular matrices over the places of a text."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from ordinate.checks import need_positive, need_whole
from ordinate.mixer import State
from ordinate.ops.align import shifted, skipped
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens


@dataclass(frozen=True, eq=False)
class Read(State):
    """All that was read.

    Args:
        x: the tokens.
        hidden: what W_1 made of them.
        real: False at padding, which comes before the tokens.
    """

    x: Float[Tensor, "b n width"]
    hidden: Float[Tensor, "b n expansion width"]
    real: Bool[Tensor, "b n"]


class TriangularMlp(SequenceMixer[Read]):
    """MLP-Mixer for texts read from left to right: its matrices over places are made lower triangular. Ours.

        h_s = gelu(sum over j <= s of W_1[s, j] x_j + b_1[s]),   y_t = sum over s <= t of W_2[t, s] h_s + b_2[t]

    The same matrices serve all channels. A place is a row of its own, so no scheme is needed to tell order. The
    cost is that of N x N matrices.

    Args:
        width: columns of the model.
        max_length: longest text that it serves [tokens]; a shorter one has the first places.
        expansion: hidden numbers for each place and channel.

    Raises:
        ValueError: sizes that are no positive whole numbers.
    Source: none; MLP-Mixer is Tolstikhin et al. 2021, equation 1, https://arxiv.org/abs/2105.01601.
    Departs: all of the causal form is ours. Rows are born with variance 1 / places that they see, so that no place is
        louder than another; the entries above the diagonal are there and never used.
    """

    honours = frozenset()
    equivariant = False
    bidirectional = False
    usual_scheme = "none"

    def __init__(self, *, width: int, max_length: int, expansion: int = 1) -> None:
        super().__init__()
        for name, value in (("width", width), ("max_length", max_length), ("expansion", expansion)):
            need_whole(name, value)
            need_positive(name, value)
        self.max_length = max_length
        # no nn.Linear: the model would draw it anew, with one size for all rows
        shape = expansion, max_length, max_length
        seen = torch.arange(1, max_length + 1)[:, None]
        self.gather = nn.Parameter(torch.randn(shape) * seen**-0.5)
        self.spread = nn.Parameter(torch.randn(shape) * (expansion * seen) ** -0.5)
        self.gather_bias = nn.Parameter(torch.zeros(expansion, max_length))
        self.spread_bias = nn.Parameter(torch.zeros(max_length))

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Read | None
    ) -> tuple[Tokens, Read | None]:
        """Gather from the places up to each, bend, spread to the places from each on."""
        read, tokens = 0 if state is None else state.x.shape[1], x.shape[1]
        alike = real is None and state is None
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
        if state is not None:
            x, real = torch.cat([state.x, x], 1), torch.cat([state.real, real], 1)
        # places are counted from a row's first token on
        before = skipped(real[:1] if alike else real)
        place = (torch.arange(read, read + tokens, device=x.device) - before[:, None]).clamp(min=0)
        told = x if alike else shifted(x, before)
        bias = self.gather_bias.to(x.dtype)[:, place].permute(1, 2, 0)[..., None]
        hidden = gelu(torch.einsum("enbt,btw->bnew", _rows(self.gather, place, told), told) + bias)
        if state is not None:
            hidden = torch.cat([state.hidden, hidden], 1)
        told = hidden if alike else shifted(hidden, before)
        y = torch.einsum("enbt,btew->bnw", _rows(self.spread, place, told), told)
        return y + self.spread_bias.to(x.dtype)[place][..., None], Read(x, hidden, real)


def _rows(
    matrix: Float[Tensor, "expansion places places"], place: Int[Tensor, "#b n"], told: Float[Tensor, "b t *rest"]
) -> Float[Tensor, "expansion n #b t"]:
    """The rows of these places, up to the diagonal."""
    columns = torch.arange(told.shape[1], device=told.device)
    rows = matrix[:, :, : told.shape[1]].to(told.dtype)[:, place.mT]
    return rows.masked_fill(columns > place.mT[..., None], 0.0)
