"""A base that grows with the text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ordinate.checks import need, need_known, need_positive
from ordinate.spectrum import Spectrum

Form = Literal["transformers", "power_of_two", "qwen"]


@dataclass(frozen=True, kw_only=True)
class Dynamic(Spectrum):
    """Leave texts of the trained length alone, and raise the base as a longer one grows.

        rate(m, L) = (theta * grown(L)^(width / (width - 2)))^(-2m / width),   L = tokens read so far, at least L0

        transformers:   grown(L) = factor L / L0 - (factor - 1)
        power_of_two:   grown(L) = 2^ceil(log2 ceil(L / L0))
        qwen:           grown(L) = 2^ceil(log2(L / L0) + 1) - 1

    Each query turns itself and the keys that it sees at the rates of its own length (its position + 1). So a text
    read piece by piece gives what it gives at once, and no row of a batch changes another.

    Args:
        trained_length: L0 [tokens].
        factor: how fast the base grows; for the form `transformers`, which needs it, only.
        form: which of the published rules.
    Source: emozilla 2023, "Dynamically scaled RoPE"; the forms are those of transformers, of foundation-model-stack
        and of Qwen's code.
    Departs: they take one length for all queries, the longest of the batch, so that cached keys disagree with later
        ones, and a long row changes a short one. The last row of a text is theirs.
    """

    rope_type = "dynamic"
    fields: ClassVar[Mapping[str, str]] = {"factor": "factor", "original_max_position_embeddings": "trained_length"}
    trained_length: int
    factor: float | None = None
    form: Form = "transformers"

    def __post_init__(self) -> None:
        need_positive("trained_length", self.trained_length)
        need_known("form of dynamic", self.form, get_args(Form))
        right = (self.form == "transformers") == (self.factor is not None)
        came = f"got factor {self.factor} with form {self.form!r}"
        need(right, "the form transformers has a factor, the others none", came, "mend it")
        need_positive("factor", 1.0 if self.factor is None else self.factor)

    @property
    def breaks(self) -> None:
        """Every token changes the rates."""
        return None

    def rates_at(self, length: Float[Tensor, "*any"], width: int, theta: float) -> Float[Tensor, "*any pairs"]:
        """The rates of a base for each length."""
        need(width > 2, "dynamic needs two pairs of channels", f"got {width} channels", "turn more channels")
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
