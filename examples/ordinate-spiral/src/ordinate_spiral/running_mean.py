"""Running mean: each token gets the mean of the values of all tokens that it sees."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ordinate.core.shapes import Tokens
from ordinate.mixers import MixerState, SequenceMixer
from ordinate.schemes import Placed


@dataclass(frozen=True, eq=False)
class RunningSum(MixerState):
    """The sum of the values so far, and their number.

    Args:
        total: sum of the values, in float32 at least.
        count: number of tokens.
    """

    total: Tensor
    count: Tensor


class RunningMean(SequenceMixer[RunningSum]):
    """Running mean of the values: attention whose weights are all equal.

        y_t = W_O mean over j <= t of W_V x_j

    Args:
        width: columns of the model.

    Source: an example of Ordinate's.
    Departs: nowhere.
    """

    supported_hooks = frozenset()
    permutation_equivariant = True
    default_scheme = "sinusoidal"

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Tensor | None, state: RunningSum | None
    ) -> tuple[Tokens, RunningSum | None]:
        """Average the values, one sequence in each row."""
        values = self.value(x)
        kind = torch.promote_types(values.dtype, torch.float32)
        there = torch.ones_like(x[..., :1], dtype=kind) if real is None else real[..., None].to(kind)
        total, count = (values.to(kind) * there).cumsum(1), there.cumsum(1)
        if state is not None:
            total, count = total + state.total, count + state.count
        if not at.where.is_causal:
            return self.out((total[:, -1:] / count[:, -1:].clamp(min=1)).expand_as(x).to(x.dtype)), None
        mean = total / count.clamp(min=1)
        return self.out(mean.to(x.dtype)), RunningSum(total[:, -1:], count[:, -1:])
