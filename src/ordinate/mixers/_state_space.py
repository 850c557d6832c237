"""Base class of state space mixers (S4, S4D): an SSM for each channel, then a gated linear layer."""

from dataclasses import dataclass

from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import glu

from ordinate.core.checks import need_fraction, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import at_least_float32, without_autocast
from ordinate.mixers._mixer import MixerState
from ordinate.mixers._sequence import SequenceMixer
from ordinate.mixers._ssm_kernel import LinearFilter
from ordinate.ops.gelu import gelu
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class SSMState(MixerState):
    """SSM states of one layer.

    Args:
        x: state vector of each channel.
    """

    x: Float[Tensor, "b h s"]


class StateSpaceMixer(SequenceMixer[SSMState]):
    """State space layer: an SSM along the sequence for each channel, GELU, then a GLU output projection.

        y = glu(W gelu(ssm(x)) + bias),   glu(a, b) = a sigmoid(b)

    Args:
        width: columns of the model.
        filter: the SSM, one channel for each column.
        dropout: dropout probability of the SSM output.
    """

    supported_hooks = frozenset()
    permutation_equivariant = False
    default_scheme = "none"

    def __init__(self, width: int, filter: LinearFilter, dropout: float) -> None:
        super().__init__()
        need_positive("width", width)
        need_fraction("dropout", dropout)
        self.filter, self.dropout = filter, nn.Dropout(dropout)
        self.out = nn.Linear(width, 2 * width)

    def check_geometry(self, where: Geometry) -> None:
        """Raise unless the mixer and its filter support this geometry."""
        super().check_geometry(where)
        self.filter.check_where(where)

    def mix_sequences(
        self, x: Tokens, at: Placed, real: Bool[Tensor, "b n"] | None, state: SSMState | None
    ) -> tuple[Tokens, SSMState | None]:
        """Apply the SSM and the output projection. Padding is 0 and on the left, so it leaves the state at 0."""
        before = None if state is None else state.x.transpose(0, 1)
        with without_autocast(x):
            u = rearrange(at_least_float32(x), "b n h -> h b n")
            y, after = self.filter(u, at.where.is_causal, before)
        y = self.dropout(gelu(rearrange(y, "h b n -> b n h").to(x.dtype)))
        return glu(self.out(y), -1), None if after is None else SSMState(after.transpose(0, 1))
