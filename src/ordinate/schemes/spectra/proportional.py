"""Proportional RoPE: partial rotation with rates spread over the whole head (Gemma 4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.core.checks import need, need_number, need_positive
from ordinate.schemes.spectra._spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Proportional(Spectrum):
    """Proportional RoPE: rotate the high-frequency fraction of the pairs, at the rates they have in full rotation.

        rate(m) = theta^(-2m / width) / factor  for m < partial_rotary_factor * width / 2,   0 for the others

    Args:
        partial_rotary_factor: share of rotated pairs, above 0 and at most 1.
        factor: divisor of the rates.
    Source: Gemma 4, as in transformers. `rotary_dim` of rope, in contrast, spreads the rates over the rotated
        channels only.
    """

    rope_type = "proportional"
    hf_fields: ClassVar[Mapping[str, str]] = {"partial_rotary_factor": "partial_rotary_factor", "factor": "factor"}
    partial_rotary_factor: float = 1.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        need_number("partial_rotary_factor", self.partial_rotary_factor)
        need(
            0 < self.partial_rotary_factor <= 1,
            "partial_rotary_factor must be above 0 and at most 1",
            f"got {self.partial_rotary_factor}",
            "give the fraction of rotated pairs",
        )
        need_positive("factor", self.factor)

    def rates(self, width: int, theta: float) -> list[float]:
        turning = int(self.partial_rotary_factor * width // 2)
        came = f"got partial_rotary_factor {self.partial_rotary_factor} of {width // 2} pairs"
        need(turning > 0, "proportional must rotate at least one pair", came, "give more")
        plain = super().rates(width, theta)
        return [rate / self.factor if m < turning else 0.0 for m, rate in enumerate(plain)]
