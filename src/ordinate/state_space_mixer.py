"""Mixers that filter each channel of a text, and then let the channels of a token meet."""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, glu

from ordinate.checks import need_fraction, need_positive
from ordinate.geometry import Geometry
from ordinate.linear_filter import LinearFilter
from ordinate.mixer import State
from ordinate.scheme import Placed
from ordinate.sequence_mixer import SequenceMixer
from ordinate.shapes import Tokens
from ordinate.tensors import at_least_float32


@dataclass(frozen=True, eq=False)
class Filtered(State):
    """What the filters of one layer remember.

    Args:
        x: of each channel.
    """

    x: Float[Tensor, "b h s"]


class StateSpaceMixer(SequenceMixer[Filtered]):
    """A filter for each channel along the text, then a gated linear layer for each token.

        y = glu(W gelu(filtered x) + bias),   glu(a, b) = a sigmoid(b)

    Args:
        width: columns of the model.
        filter: one channel for each column.
        dropout: share of the filtered numbers dropped in training.
    """

    honours = frozenset()
    equivariant = False
    usual_scheme = "none"

    def __init__(self, width: int, filter: LinearFilter, dropout: float) -> None:
        super().__init__()
        need_positive("width", width)
        need_fraction("dropout", dropout)
        self.filter, self.dropout = filter, nn.Dropout(dropout)
        self.out = nn.Linear(width, 2 * width)

    def check_where(self, where: Geometry) -> None:
        """Raise unless it has a form for this geometry."""
        super().check_where(where)
        self.filter.check_where(where)

    def mix(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: Filtered | None
    ) -> tuple[Tokens, Filtered | None]:
        """Filter, and let channels meet. Padding is zero and comes first: filters remember nothing of it."""
        before = None if state is None else state.x.transpose(0, 1)
        with torch.autocast(x.device.type, enabled=False):
            u = rearrange(at_least_float32(x), "b n h -> h b n")
            y, after = self.filter(u, at.where.hides_future, before)
        y = self.dropout(gelu(rearrange(y, "h b n -> b n h").to(x.dtype)))
        return glu(self.out(y), -1), None if after is None else Filtered(after.transpose(0, 1))
