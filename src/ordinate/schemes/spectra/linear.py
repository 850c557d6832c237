"""Position interpolation: linear RoPE scaling (Chen et al., 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.core.checks import need_positive
from ordinate.schemes.spectra._spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Linear(Spectrum):
    """Position interpolation: divide all rates by one factor, so positions are mapped into the trained range.

        rate(m) = theta^(-2m / width) / factor

    Args:
        factor: divisor, above zero; with 4, a sequence of length 4 L has the angles of one of length L.
    Source: Chen et al. 2023, Position Interpolation, https://arxiv.org/abs/2306.15595; also kaiokendev 2023.
    """

    rope_type = "linear"
    hf_fields: ClassVar[Mapping[str, str]] = {"factor": "factor"}
    factor: float

    def __post_init__(self) -> None:
        need_positive("factor", self.factor)

    def rates(self, width: int, theta: float) -> list[float]:
        return [rate / self.factor for rate in super().rates(width, theta)]
