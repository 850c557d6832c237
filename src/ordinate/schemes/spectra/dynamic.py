"""Dynamic NTK scaling: a RoPE base that grows with the sequence length."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.core.checks import need, need_known, need_positive
from ordinate.schemes.spectra._spectrum import RatesBy, Spectrum

DynamicForm = Literal["transformers", "power_of_two", "qwen"]


@dataclass(frozen=True, kw_only=True)
class Dynamic(Spectrum):
    """Dynamic NTK scaling: increase the base with the sequence length beyond the training length.

        rate(m, L) = (theta * grown(L)^(width / (width - 2)))^(-2m / width),   L = tokens read so far, at least L0

        transformers:   grown(L) = factor L / L0 - (factor - 1)
        power_of_two:   grown(L) = 2^ceil(log2 ceil(L / L0))
        qwen:           grown(L) = 2^ceil(log2(L / L0) + 1) - 1

    Args:
        trained_length: L0 [tokens].
        factor: growth of the base; required by the form `transformers`, and used by it only.
        form: the published rule.
        rates_by: whose length sets the rates. `query`: each query is scored at its own (its position + 1), so that
            decoding with a KV cache equals the full forward pass, and the sequences of a batch are independent.
            `sequence`: all tokens of a call are rotated at that of its longest sequence, and cached keys stay as they
            are, as in public code; `load` takes this for published models.
    Source: emozilla 2023, "Dynamically scaled RoPE"; the forms are those of transformers, of foundation-model-stack
        and of Qwen's code.
    Departs: by default, in the length: theirs is that of `rates_by=sequence`, where cached keys are inconsistent with
        later ones, and a long sequence changes a short one in the same batch. The last query of a sequence agrees.
    """

    rope_type = "dynamic"
    hf_fields: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "original_max_position_embeddings": "trained_length",
    }
    trained_length: int
    factor: float | None = None
    form: DynamicForm = "transformers"
    rates_by: RatesBy = "query"

    def __post_init__(self) -> None:
        need_positive("trained_length", self.trained_length)
        need_known("form of dynamic", self.form, get_args(DynamicForm))
        need_known("rates_by", self.rates_by, get_args(RatesBy))
        right = (self.form == "transformers") == (self.factor is not None)
        came = f"got factor {self.factor} with form {self.form!r}"
        need(
            right, "factor is required by the form transformers, and used by it only", came, "add it or leave it out"
        )
        need_positive("factor", 1.0 if self.factor is None else self.factor)

    @property
    def length_thresholds(self) -> None:
        """None: the rates change with each token."""
        return None

    @property
    def whole_sequence(self) -> bool:
        """Whether one length sets the rates of all tokens of a call."""
        return self.rates_by == "sequence"

    def rates_at(self, length: Float[Tensor, "*any"], width: int, theta: float) -> Float[Tensor, "*any pairs"]:
        need(width != 2, "dynamic needs two channel pairs", f"got {width} channels", "rotate more channels")
        base = theta * self._grown(length.double()) ** (width / (width - 2))
        exponents = torch.arange(0, width, 2, dtype=torch.float64, device=length.device) / width
        return base[..., None] ** -exponents

    def _grown(self, length: Tensor) -> Tensor:
        share = (length / self.trained_length).clamp(min=1.0)
        if self.form == "power_of_two":
            return 2 ** share.ceil().log2().ceil()
        if self.form == "qwen":
            return 2 ** (share.log2() + 1).ceil() - 1
        return (self.factor or 1.0) * (share - 1) + 1
