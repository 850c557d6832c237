"""NTK-aware scaling: a larger RoPE base (bloc97, 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.core.checks import need, need_positive
from ordinate.schemes.spectra._spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Ntk(Spectrum):
    """NTK-aware scaling: increase the base so that the lowest rate is divided by `factor` and the highest unchanged.

        rate(m) = (theta * factor^(width / (width - 2)))^(-2m / width)

    Args:
        factor: divisor of the lowest rate.
    Source: bloc97 2023, "NTK-aware scaled RoPE"; as in rotary-embedding-torch and x-transformers.
    """

    rope_type = "ntk"
    hf_fields: ClassVar[Mapping[str, str]] = {"factor": "factor"}
    factor: float

    def __post_init__(self) -> None:
        need_positive("factor", self.factor)

    def rates(self, width: int, theta: float) -> list[float]:
        need(width > 2, "ntk needs two channel pairs", f"got {width} channels", "rotate more channels")
        return super().rates(width, theta * self.factor ** (width / (width - 2)))
