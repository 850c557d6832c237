"""Options of gated DeltaNet in which published models differ."""

from dataclasses import dataclass

from ordinate.core.checks import need_fraction, need_positive, need_whole
from ordinate.core.option_values import need_numbers


@dataclass(frozen=True)
class GatedDeltaOptions:
    """Options of gated DeltaNet in which published models differ.

    Args:
        key_heads: heads of queries and keys, each shared by as many consecutive heads of values (Qwen3-Next); None:
            as many as heads of values.
        norm_eps: epsilon of the norm of each head.

    Raises:
        ValueError: a number of heads that is not above zero, or an epsilon outside of 0 to 1.
    """

    key_heads: int | None = None
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        need_numbers(self)
        if self.key_heads is not None:
            need_whole("key_heads", self.key_heads)
            need_positive("key_heads", self.key_heads)
        need_fraction("norm_eps", self.norm_eps)
