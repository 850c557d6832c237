"""RoPE rates rounded to 16 bits (ESM-2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from ordinate.core.checks import need_known
from ordinate.schemes.spectra._spectrum import Spectrum

NarrowType = Literal["float16", "bfloat16"]
TYPES: Mapping[NarrowType, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Rounded(Spectrum):
    """Rounded rates: those of a model that was trained with its table of rates in a 16-bit type.

        rate(m) = the number of the type that is nearest to theta^(-2m / width)

    Angles are then computed from these rates as from others, in float64.

    Args:
        dtype: the type, `float16` or `bfloat16`.
    Source: the published ESM-2 models, whose rates are stored in float16, see Lin et al. 2023,
        https://doi.org/10.1126/science.ade2574, and their code, https://github.com/facebookresearch/esm.
    """

    dtype: NarrowType = "float16"

    def __post_init__(self) -> None:
        need_known("dtype of rounded", self.dtype, get_args(NarrowType))

    def rates(self, width: int, theta: float) -> list[float]:
        return torch.tensor(super().rates(width, theta), device="cpu").to(TYPES[self.dtype]).tolist()
