"""Every rate divided by one number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.checks import need_positive
from ordinate.spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Linear(Spectrum):
    """Turn everything more slowly by one factor: positions are squeezed into the trained range.

        rate(m) = theta^(-2m / width) / factor

    Args:
        factor: how much slower, above zero; 4 makes a text of 4 L look as long as one of L.
    Source: Chen et al. 2023, Position Interpolation, https://arxiv.org/abs/2306.15595; also kaiokendev 2023.
    """

    rope_type = "linear"
    fields: ClassVar[Mapping[str, str]] = {"factor": "factor"}
    factor: float

    def __post_init__(self) -> None:
        need_positive("factor", self.factor)

    def rates(self, width: int, theta: float) -> list[float]:
        """The plain rates, divided."""
        return [rate / self.factor for rate in super().rates(width, theta)]
