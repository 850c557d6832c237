"""Long wavelengths stretched, short ones left, a smooth passage between them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.checks import need, need_positive
from ordinate.spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Llama3(Spectrum):
    """Stretch the pairs whose wavelength exceeds L0 / slow, leave those below L0 / fast, pass smoothly in between.

        rate(m) = plain(m) * (s / factor + 1 - s),   1 - s = clamp((L0 / wavelength(m) - slow) / (fast - slow), 0, 1)

    Args:
        factor: how much slower the slow pairs turn.
        trained_length: L0 [tokens].
        slow: pairs that turn fewer times than this within L0 are stretched in full [turns].
        fast: pairs that turn more often than this are left alone [turns].
    Source: the published code of Llama 3.1, https://arxiv.org/abs/2407.21783.
    """

    rope_type = "llama3"
    fields: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "original_max_position_embeddings": "trained_length",
        "low_freq_factor": "slow",
        "high_freq_factor": "fast",
    }
    factor: float
    trained_length: int
    slow: float = 1.0
    fast: float = 4.0

    def __post_init__(self) -> None:
        for name in ("factor", "trained_length", "slow", "fast"):
            need_positive(name, getattr(self, name))
        need(self.fast >= self.slow, "fast is at least slow", f"got {self.fast} and {self.slow}", "4 and 1 are usual")

    def rates(self, width: int, theta: float) -> list[float]:
        """The plain rates, stretched by wavelength."""
        return [
            rate * self._stretch(self.trained_length * rate / (2 * math.pi)) for rate in super().rates(width, theta)
        ]

    def _stretch(self, turns: float) -> float:
        if self.fast == self.slow:
            return 1.0 if turns >= self.slow else 1 / self.factor
        kept = min(max((turns - self.slow) / (self.fast - self.slow), 0.0), 1.0)
        return (1 - kept) / self.factor + kept
