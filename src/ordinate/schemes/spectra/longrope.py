"""LongRoPE: searched divisors for each frequency, one set for short and one for long contexts (Ding et al., 2024)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.schemes.spectra._spectrum import RatesBy, Spectrum


@dataclass(frozen=True, kw_only=True)
class LongRope(Spectrum):
    """LongRoPE: divide the rate of each channel pair by its own factor; beyond the training length, by another.

        rate(m, L) = theta^(-2m / width) / (short_factor[m] if L <= L0 else long_factor[m]),   L = tokens read so far

    Rotated queries and keys are multiplied by the attention factor sqrt(1 + log(factor) / log(L0)).

    Args:
        short_factor: the divisors within the trained length, one for each pair, or one for all.
        long_factor: the divisors beyond it.
        trained_length: L0 [tokens].
        factor: the maximum length over L0; it sets the attention factor.
        attention_factor: overrides the attention factor.
        rates_by: whose length sets the rates. `query`: each query is scored at its own (its position + 1), so that
            decoding with a KV cache equals the full forward pass, and the sequences of a batch are independent.
            `sequence`: all tokens of a call are rotated at that of its longest sequence, and cached keys stay as they
            are, as in public code; `load` takes this for published models.
    Source: Ding et al. 2024, LongRoPE, https://arxiv.org/abs/2402.13753, the attention factor from the code of Phi-3.
    Departs: by default, in the length: that of public code is `rates_by=sequence`.
    """

    rope_type = "longrope"
    hf_fields: ClassVar[Mapping[str, str]] = {
        "short_factor": "short_factor",
        "long_factor": "long_factor",
        "original_max_position_embeddings": "trained_length",
        "factor": "factor",
        "attention_factor": "attention_factor",
    }
    short_factor: Sequence[float]
    long_factor: Sequence[float]
    trained_length: int
    factor: float | None = None
    attention_factor: float | None = None
    rates_by: RatesBy = "query"

    def __post_init__(self) -> None:
        for name in ("short_factor", "long_factor"):
            # a list from a file would make the value changeable
            object.__setattr__(self, name, tuple(getattr(self, name)))
            low = min(getattr(self, name), default=0.0)
            need(low > 0, f"{name} must be divisors above zero", f"got {low}", "give one for each pair")
        need(
            len(self.short_factor) == len(self.long_factor),
            "short_factor and long_factor must have one divisor for each pair",
            f"got {len(self.short_factor)} and {len(self.long_factor)}",
            "give lists of equal length",
        )
        came = f"got {self.trained_length}"
        need(self.trained_length > 1, "trained_length must be above 1", came, "give the training length")
        for name in ("factor", "attention_factor"):
            need_positive(name, 1.0 if getattr(self, name) is None else getattr(self, name))
        one = (self.factor is None) != (self.attention_factor is None)
        need_known("rates_by", self.rates_by, get_args(RatesBy))
        came = f"got factor {self.factor}, attention_factor {self.attention_factor}"
        need(one, "exactly one of factor and attention_factor must be set", came, "give one of them")

    @classmethod
    def fill_missing(cls, numbers: dict[str, Any], max_length: int | None) -> dict[str, Any]:
        """Set a missing factor to max_length over trained_length; drop it if attention_factor is given."""
        # trained_length has no default: config.json of Phi-3 keeps it elsewhere, and max_length is the extended one
        if "attention_factor" in numbers:
            return {name: value for name, value in numbers.items() if name != "factor"}
        if "factor" in numbers or "trained_length" not in numbers or max_length is None:
            return numbers
        return numbers | {"factor": max_length / numbers["trained_length"]}

    @property
    def query_key_scale(self) -> float:
        """Attention factor: the multiplier of rotated queries and keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        grown = max(self.factor or 1.0, 1.0)
        return math.sqrt(1 + math.log(grown) / math.log(self.trained_length))

    @property
    def length_thresholds(self) -> tuple[int, ...]:
        """The training length, beyond which the other set of divisors applies."""
        return (self.trained_length,)

    @property
    def whole_sequence(self) -> bool:
        """Whether one length sets the rates of all tokens of a call."""
        return self.rates_by == "sequence"

    def rates(self, width: int, theta: float) -> list[float]:
        """Return the rates within the training length."""
        return self._divided(self.short_factor, width, theta)

    def rates_at(self, length: Float[Tensor, "*any"], width: int, theta: float) -> Float[Tensor, "*any pairs"]:
        short, long = (
            numbers_beside(length, self._divided(by, width, theta), torch.float64)
            for by in (self.short_factor, self.long_factor)
        )
        return torch.where((length > self.trained_length)[..., None], long, short)

    def _divided(self, by: Sequence[float], width: int, theta: float) -> list[float]:
        plain = super().rates(width, theta)
        need(
            len(by) in (1, len(plain)),
            "short_factor and long_factor of longrope need one divisor for each rotated pair, or one for all",
            f"got {len(by)} for {len(plain)} pairs",
            "give as many divisors, or rotate as many channels",
        )
        divisors = by if len(by) == len(plain) else [by[0]] * len(plain)
        return [rate / divisor for rate, divisor in zip(plain, divisors, strict=True)]
