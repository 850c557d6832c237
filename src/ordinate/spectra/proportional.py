"""Rates spread over all pairs, of which only the first turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.checks import need, need_positive
from ordinate.spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Proportional(Spectrum):
    """Turn a share of the pairs at the rates they would have if all turned, and leave the slow ones still.

        rate(m) = theta^(-2m / width) / factor  for m < share * width / 2,   0 for the others

    Args:
        share: of the pairs that turn, above 0 and at most 1.
        factor: how much slower they turn.
    Source: Gemma 4, as in transformers. Unlike `rotated` of rope, which spreads the rates over the turning channels.
    """

    rope_type = "proportional"
    fields: ClassVar[Mapping[str, str]] = {"partial_rotary_factor": "share", "factor": "factor"}
    share: float = 1.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        need(
            0 < self.share <= 1, "share lies above 0, at most at 1", f"got {self.share}", "give a share of the pairs"
        )
        need_positive("factor", self.factor)

    def rates(self, width: int, theta: float) -> list[float]:
        """The first rates; zeros after them."""
        turning = int(self.share * width // 2)
        came = f"got share {self.share} of {width // 2} pairs"
        need(turning > 0, "proportional turns a pair at least", came, "give more")
        plain = super().rates(width, theta)
        return [rate / self.factor if m < turning else 0.0 for m, rate in enumerate(plain)]
