"""YaRN: NTK-by-parts RoPE scaling with an attention temperature (Peng et al., 2023)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ordinate.core.checks import need, need_positive
from ordinate.schemes.spectra._spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Yarn(Spectrum):
    """YaRN: divide low frequencies by a factor, keep high ones, with a linear ramp between and an attention factor.

        rate(m) = plain(m) * (s(m) / factor + 1 - s(m)),   s(m) = clamp((m - low) / (high - low), 0, 1)
        low, high = width log(L0 / (2 pi turns)) / (2 log theta)  for turns = beta_fast, beta_slow

    Rotated queries and keys are multiplied by the attention factor 0.1 log(factor) + 1, and q.k by its square.

    Args:
        factor: divisor of the low frequencies.
        trained_length: L0 [tokens].
        beta_fast: pairs that complete at least this many turns within L0 are unchanged [turns].
        beta_slow: pairs that complete at most this many turns are divided by `factor` [turns].
        truncate: whether low and high are rounded outwards to whole pairs (transformers; gpt-oss and
            foundation-model-stack do not).
        attention_factor: overrides the attention factor.
        mscale: with `mscale_all_dim`, the attention factor is (0.1 mscale log(factor) + 1) over the same of
            mscale_all_dim, as in DeepSeek, whose attention multiplies the scale of q.k by the square of the latter.
        mscale_all_dim: see mscale.
    Source: Peng et al. 2023, YaRN, sections 3.2 to 3.4, https://arxiv.org/abs/2309.00071.
    """

    rope_type = "yarn"
    hf_fields: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "original_max_position_embeddings": "trained_length",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "truncate": "truncate",
        "attention_factor": "attention_factor",
        "mscale": "mscale",
        "mscale_all_dim": "mscale_all_dim",
    }
    factor: float
    trained_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        for name in ("factor", "trained_length", "beta_fast", "beta_slow"):
            need_positive(name, getattr(self, name))
        came = f"got {self.beta_fast} and {self.beta_slow}"
        need(self.beta_fast >= self.beta_slow, "beta_fast is at least beta_slow", came, "32 and 1 are usual")
        need_positive("attention_factor", 1.0 if self.attention_factor is None else self.attention_factor)
        given = (self.mscale is not None, self.mscale_all_dim is not None)
        came = f"got mscale {self.mscale}, mscale_all_dim {self.mscale_all_dim}"
        need(given[0] == given[1], "mscale and mscale_all_dim must be set together", came, "give both, or neither")
        need(
            not (given[0] and self.attention_factor is not None),
            "attention_factor cannot be combined with mscale and mscale_all_dim",
            "got all of them",
            "leave attention_factor out, or both others",
        )

    @classmethod
    def fill_missing(cls, numbers: dict[str, Any], max_length: int | None) -> dict[str, Any]:
        """Set a missing factor to max_length over trained_length; drop mscale unless both are given and not 0."""
        numbers = super().fill_missing(numbers, max_length)
        # 0 stands for the default
        numbers = {name: value for name, value in numbers.items() if value or name not in ("beta_fast", "beta_slow")}
        if "factor" not in numbers and max_length is not None:
            numbers = numbers | {"factor": max_length / numbers["trained_length"]}
        both = numbers.get("mscale") and numbers.get("mscale_all_dim")
        if both and "attention_factor" not in numbers:
            return numbers
        return {name: value for name, value in numbers.items() if name not in ("mscale", "mscale_all_dim")}

    @property
    def query_key_scale(self) -> float:
        """Attention factor (temperature): the multiplier of rotated queries and keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale is not None and self.mscale_all_dim is not None:
            return self._attention_factor(self.mscale) / self._attention_factor(self.mscale_all_dim)
        return self._attention_factor(1.0)

    def rates(self, width: int, theta: float) -> list[float]:
        must = "yarn needs an even number of rotated channels"
        need(width % 2 == 0, must, f"got {width}", "give an even rotary_dim")
        need(theta > 1, "yarn needs a base above 1", f"got theta {theta}", "10000 is usual")
        low, high = (self._pair_with_turns(turns, width, theta) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        # as in the published code: a ramp of zero width becomes a step
        over = high - low or 0.001
        shares = [min(max((m - low) / over, 0.0), 1.0) for m in range(width // 2)]
        plain = super().rates(width, theta)
        return [rate * (share / self.factor + 1 - share) for rate, share in zip(plain, shares, strict=True)]

    def _pair_with_turns(self, turns: float, width: int, theta: float) -> float:
        return width * math.log(self.trained_length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    def _attention_factor(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.factor) + 1 if self.factor > 1 else 1.0
