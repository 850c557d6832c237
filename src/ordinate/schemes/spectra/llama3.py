"""Llama 3 RoPE scaling: low frequencies divided by a factor, high ones unchanged, interpolation between."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ordinate.core.checks import need, need_positive
from ordinate.schemes.spectra._spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Llama3(Spectrum):
    """Llama 3 scaling: divide low frequencies by a factor, keep high ones, interpolate linearly in between.

        rate(m) = plain(m) * (s / factor + 1 - s),   1 - s = clamp((L0 / wavelength(m) - low) / (high - low), 0, 1)

    Args:
        factor: divisor of the low frequencies.
        trained_length: L0 [tokens].
        low_freq_factor: low: pairs that complete fewer turns than this within L0 are divided by `factor` [turns].
        high_freq_factor: high: pairs that complete more turns than this are unchanged [turns].
    Source: the published code of Llama 3.1, https://arxiv.org/abs/2407.21783.
    """

    rope_type = "llama3"
    hf_fields: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "original_max_position_embeddings": "trained_length",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
    }
    factor: float
    trained_length: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        for name in ("factor", "trained_length", "low_freq_factor", "high_freq_factor"):
            need_positive(name, getattr(self, name))
        need(
            self.high_freq_factor >= self.low_freq_factor,
            "high_freq_factor is at least low_freq_factor",
            f"got {self.high_freq_factor} and {self.low_freq_factor}",
            "4 and 1 are usual",
        )

    def rates(self, width: int, theta: float) -> list[float]:
        return [
            rate * self._stretch(self.trained_length * rate / (2 * math.pi)) for rate in super().rates(width, theta)
        ]

    def _stretch(self, turns: float) -> float:
        if self.high_freq_factor == self.low_freq_factor:
            return 1.0 if turns >= self.low_freq_factor else 1 / self.factor
        kept = min(max((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0.0), 1.0)
        return (1 - kept) / self.factor + kept
