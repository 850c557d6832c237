"""Mixing by two matrices over the places of a text."""

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.functional import gelu

from ordinate.checks import need_positive, need_whole
from ordinate.mixer import State
from ordinate.ops.align import shifted, skipped
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens


class MlpMixer(SequenceMixer[State]):
    """Each channel by itself is mixed along the text by a small network whose weights belong to places, not to words.

        y = (W_2 gelu(W_1 x + b_1) + b_2),   W_1: hidden x places,   W_2: places x hidden

    The same two matrices serve all channels. A place is a row of its own, so no scheme is needed to tell order. Every
    place reaches every other: there is no causal form. `triangular_mlp` is one of ours.

    Args:
        width: columns of the model.
        max_length: longest text that it serves [tokens]; a shorter one has the first places.
        hidden: rows of W_1; None: half of the width, as in the paper.

    Raises:
        ValueError: sizes that are no positive whole numbers.
    Source: Tolstikhin et al. 2021, equation 1, https://arxiv.org/abs/2105.01601. The norm before it and the sum after
        it are the block's.
    Departs: a text may be shorter than max_length; it then has the first columns of W_1 and the first rows of W_2,
        and padding is left out.
    """

    honours = frozenset()
    equivariant = False
    causal = False
    streams = False
    usual_scheme = "none"

    def __init__(self, *, width: int, max_length: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = max(1, width // 2) if hidden is None else hidden
        for name, value in (("width", width), ("max_length", max_length), ("hidden", hidden)):
            need_whole(name, value)
            need_positive(name, value)
        self.max_length = max_length
        # no nn.Linear: the model would draw it anew, too small for a matrix over places
        self.gather, self.gather_bias = _matrix(hidden, max_length), nn.Parameter(torch.zeros(hidden))
        self.spread, self.spread_bias = _matrix(max_length, hidden), nn.Parameter(torch.zeros(max_length))

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: State | None
    ) -> tuple[Tokens, State | None]:
        """Gather over places, bend, spread over places."""
        tokens, before = x.shape[1], None if real is None else skipped(real)
        # places are counted from a row's first token on, and padding is zero
        x = x if before is None else shifted(x, before)
        gather, spread, gather_bias, spread_bias = (
            parameter.to(x.dtype) for parameter in (self.gather, self.spread, self.gather_bias, self.spread_bias)
        )
        hidden = gelu(gather[:, :tokens] @ x + gather_bias[:, None])
        y = spread[:tokens] @ hidden + spread_bias[:tokens, None]
        return y if before is None else shifted(y, -before), None


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))
