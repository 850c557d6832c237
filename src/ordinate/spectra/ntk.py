"""A larger base: slow pairs are stretched, fast ones hardly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.checks import need, need_positive
from ordinate.spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Ntk(Spectrum):
    """Raise the base so that the slowest pair turns `factor` times more slowly and the fastest as before.

        rate(m) = (theta * factor^(width / (width - 2)))^(-2m / width)

    Args:
        factor: how much slower the slowest pair turns.
    Source: bloc97 2023, "NTK-aware scaled RoPE"; as in rotary-embedding-torch and x-transformers.
    """

    rope_type = "ntk"
    fields: ClassVar[Mapping[str, str]] = {"factor": "factor"}
    factor: float

    def __post_init__(self) -> None:
        need_positive("factor", self.factor)

    def rates(self, width: int, theta: float) -> list[float]:
        """The plain rates of a larger base."""
        need(width > 2, "ntk needs two pairs of channels", f"got {width} channels", "turn more channels")
        return super().rates(width, theta * self.factor ** (width / (width - 2)))
