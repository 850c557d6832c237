"""Options of gated DeltaNet in which published models differ."""

from dataclasses import dataclass

from ordinate.core.checks import need_fraction, need_positive, need_whole
from ordinate.core.option_values import normalise_fields
from ordinate.mixers._short_convolution import check_activation
from ordinate.ops.activation import Activation


@dataclass(frozen=True)
class GatedDeltaOptions:
    """Options of gated DeltaNet in which published models differ.

    Args:
        key_heads: heads of queries and keys, each shared by as many consecutive heads of values (Qwen3-Next); None:
            as many as heads of values.
        norm_eps: epsilon of the norm of each head.
        value_width: channels of a head's values, where they are no multiple of those of its keys; None: `value_ratio`
            times as many.
        activation: function behind the short convolution; that of the gate is SiLU.

    Raises:
        ValueError: a number of heads or channels that is not above zero, an epsilon outside of 0 to 1, or an unknown
            activation, or one that does not take 0 to 0: padding would enter the state.
    """

    key_heads: int | None = None
    norm_eps: float = 1e-5
    value_width: int | None = None
    activation: Activation = "silu"

    def __post_init__(self) -> None:
        normalise_fields(self)
        for name in ("key_heads", "value_width"):
            if getattr(self, name) is not None:
                need_whole(name, getattr(self, name))
                need_positive(name, getattr(self, name))
        need_fraction("norm_eps", self.norm_eps)
        check_activation(self.activation)
