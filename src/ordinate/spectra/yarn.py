"""Slow pairs stretched, fast ones left, a ramp between them, and a temperature."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ordinate.checks import need, need_positive
from ordinate.spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class Yarn(Spectrum):
    """Stretch the pairs that never turn fully within the trained length, and leave those that turn often.

        rate(m) = plain(m) * (s(m) / factor + 1 - s(m)),   s(m) = clamp((m - low) / (high - low), 0, 1)
        low, high = width log(L0 / (2 pi turns)) / (2 log theta)  for turns = fast, slow

    What turns is multiplied by 0.1 log(factor) + 1, so that q.k grows by the square of that.

    Args:
        factor: how much slower the slow pairs turn.
        trained_length: L0 [tokens].
        fast: pairs that turn at least this often within L0 are left alone [turns].
        slow: pairs that turn at most this often are stretched in full [turns].
        truncate: whether low and high are rounded outwards to whole pairs (transformers; gpt-oss and
            foundation-model-stack do not).
        attention_factor: replaces the multiplier.
        mscale: with `mscale_all_dim`, the multiplier is (0.1 mscale log(factor) + 1) over the same of mscale_all_dim,
            as in DeepSeek, which multiplies the scale of q.k by the square of the latter in its attention.
        mscale_all_dim: see mscale.
    Source: Peng et al. 2023, YaRN, sections 3.2 to 3.4, https://arxiv.org/abs/2309.00071.
    """

    rope_type = "yarn"
    fields: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "original_max_position_embeddings": "trained_length",
        "beta_fast": "fast",
        "beta_slow": "slow",
        "truncate": "truncate",
        "attention_factor": "attention_factor",
        "mscale": "mscale",
        "mscale_all_dim": "mscale_all_dim",
    }
    factor: float
    trained_length: int
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        for name in ("factor", "trained_length", "fast", "slow"):
            need_positive(name, getattr(self, name))
        came = f"got {self.fast} and {self.slow}"
        need(self.fast >= self.slow, "fast is at least slow", came, "32 and 1 are usual")
        need_positive("attention_factor", 1.0 if self.attention_factor is None else self.attention_factor)
        given = (self.mscale is not None, self.mscale_all_dim is not None)
        came = f"got mscale {self.mscale}, mscale_all_dim {self.mscale_all_dim}"
        need(given[0] == given[1], "mscale and mscale_all_dim work together", came, "give both, or neither")
        need(
            not (given[0] and self.attention_factor is not None),
            "attention_factor replaces mscale and mscale_all_dim",
            "got all of them",
            "leave one or the others out",
        )

    @classmethod
    def complete(cls, numbers: dict[str, Any], max_length: int | None) -> dict[str, Any]:
        """A factor left out is the longest input over the trained length; one mscale alone, or a 0, says nothing."""
        numbers = super().complete(numbers, max_length)
        if "factor" not in numbers and max_length is not None:
            numbers = numbers | {"factor": max_length / numbers["trained_length"]}
        both = numbers.get("mscale") and numbers.get("mscale_all_dim")
        if both and "attention_factor" not in numbers:
            return numbers
        return {name: value for name, value in numbers.items() if name not in ("mscale", "mscale_all_dim")}

    @property
    def magnitude(self) -> float:
        """The temperature, as a multiplier of queries and keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale is not None and self.mscale_all_dim is not None:
            return self._grown(self.mscale) / self._grown(self.mscale_all_dim)
        return self._grown(1.0)

    def rates(self, width: int, theta: float) -> list[float]:
        """The plain rates, stretched along the ramp."""
        need(theta > 1, "yarn counts turns of a base above 1", f"got theta {theta}", "10000 is usual")
        low, high = (self._pair_that_turns(turns, width, theta) for turns in (self.fast, self.slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        # as published: a ramp of no width is a step
        over = high - low or 0.001
        shares = [min(max((m - low) / over, 0.0), 1.0) for m in range(width // 2)]
        plain = super().rates(width, theta)
        return [rate * (share / self.factor + 1 - share) for rate, share in zip(plain, shares, strict=True)]

    def _pair_that_turns(self, turns: float, width: int, theta: float) -> float:
        return width * math.log(self.trained_length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    def _grown(self, by: float) -> float:
        return 0.1 * by * math.log(self.factor) + 1 if self.factor > 1 else 1.0
