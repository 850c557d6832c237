"""A stretch found by search for each pair, one set for short texts and one for long ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need, need_positive
from ordinate.spectrum import Spectrum


@dataclass(frozen=True, kw_only=True)
class LongRope(Spectrum):
    """Divide each pair's rate by a number of its own; beyond the trained length, by another.

        rate(m, L) = theta^(-2m / width) / (short[m] if L <= L0 else long[m]),   L = tokens read so far

    What turns is multiplied by sqrt(1 + log(factor) / log(L0)). Each query turns itself and the keys that it sees by
    the set of its own length (its position + 1), so decoding gives what the full pass gives.

    Args:
        short: the divisors within the trained length, one for each pair.
        long: the divisors beyond it.
        trained_length: L0 [tokens].
        factor: the longest length over L0; it sets the multiplier.
        attention_factor: replaces the multiplier.
    Source: Ding et al. 2024, LongRoPE, https://arxiv.org/abs/2402.13753, the multiplier from the code of Phi-3.
    Departs: public code takes one set for all, by the longest row of the batch, and keeps cached keys of the other.
    """

    rope_type = "longrope"
    fields: ClassVar[Mapping[str, str]] = {
        "short_factor": "short",
        "long_factor": "long",
        "original_max_position_embeddings": "trained_length",
        "factor": "factor",
        "attention_factor": "attention_factor",
    }
    short: Sequence[float]
    long: Sequence[float]
    trained_length: int
    factor: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        for name in ("short", "long"):
            # a list from a file would make the value changeable
            object.__setattr__(self, name, tuple(getattr(self, name)))
            low = min(getattr(self, name), default=0.0)
            need(low > 0, f"{name} holds divisors above zero", f"got {low}", "give one for each pair")
        need(
            len(self.short) == len(self.long),
            "short and long hold one divisor for each pair",
            f"got {len(self.short)} and {len(self.long)}",
            "give as many of both",
        )
        need(self.trained_length > 1, "trained_length is above 1", f"got {self.trained_length}", "give the true one")
        for name in ("factor", "attention_factor"):
            need_positive(name, 1.0 if getattr(self, name) is None else getattr(self, name))
        one = (self.factor is None) != (self.attention_factor is None)
        came = f"got factor {self.factor}, attention_factor {self.attention_factor}"
        need(one, "factor sets the multiplier, or attention_factor does", came, "give one of them")

    @classmethod
    def complete(cls, numbers: dict[str, Any], max_length: int | None) -> dict[str, Any]:
        """A factor left out is the longest input over the trained length; with attention_factor it says nothing."""
        # the longest input is not taken for the trained length: a config.json of Phi-3 keeps that one elsewhere
        if "attention_factor" in numbers:
            return {name: value for name, value in numbers.items() if name != "factor"}
        if "factor" in numbers or "trained_length" not in numbers or max_length is None:
            return numbers
        return numbers | {"factor": max_length / numbers["trained_length"]}

    @property
    def magnitude(self) -> float:
        """The multiplier of queries and keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        grown = max(self.factor or 1.0, 1.0)
        return math.sqrt(1 + math.log(grown) / math.log(self.trained_length))

    @property
    def breaks(self) -> tuple[int, ...]:
        """The trained length."""
        return (self.trained_length,)

    def rates(self, width: int, theta: float) -> list[float]:
        """The rates within the trained length."""
        return self._divided(self.short, width, theta)

    def rates_at(self, length: Float[Tensor, "*any"], width: int, theta: float) -> Float[Tensor, "*any pairs"]:
        """The rates of either set."""
        short, long = (
            torch.tensor(self._divided(by, width, theta), dtype=torch.float64, device=length.device)
            for by in (self.short, self.long)
        )
        return torch.where((length > self.trained_length)[..., None], long, short)

    def _divided(self, by: Sequence[float], width: int, theta: float) -> list[float]:
        need(
            len(by) == width // 2,
            "longrope holds one divisor for each pair that turns",
            f"got {len(by)} for {width // 2} pairs",
            "give as many, or turn as many channels",
        )
        return [rate / divisor for rate, divisor in zip(super().rates(width, theta), by, strict=True)]
