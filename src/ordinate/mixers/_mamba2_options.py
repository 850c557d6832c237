"""Options of Mamba-2 in which published models differ."""

import math
from dataclasses import dataclass

from ordinate.core.checks import need, need_fraction
from ordinate.core.option_values import normalise_fields


@dataclass(frozen=True)
class Mamba2Options:
    """Options of Mamba-2 in which published models differ.

    Args:
        bias: whether the projections of the input and of the output have biases.
        convolution_bias: whether the short convolution has one.
        norm_eps: epsilon of the norm.
        least_step: a smaller step size is raised to this.
        largest_step: a larger step size is lowered to this; None: no limit.

    Raises:
        ValueError: an epsilon outside of 0 to 1, or limits that are negative, infinite or not in order.
    """

    bias: bool = False
    convolution_bias: bool = True
    norm_eps: float = 1e-5
    least_step: float = 0.0
    largest_step: float | None = None

    def __post_init__(self) -> None:
        normalise_fields(self)
        need_fraction("norm_eps", self.norm_eps)
        least, largest = self.least_step, self.largest_step
        need(
            0 <= least < math.inf and (largest is None or least <= largest < math.inf),
            "step sizes need 0 <= least_step <= largest_step, both finite",
            f"got least_step={least} and largest_step={largest}",
            "correct them, or leave them out",
        )

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Smallest and largest step size; None: no limit."""
        return self.least_step or None, self.largest_step
