"""Pegasus."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ordinate.models.shape import Shape
from ordinate.pretrained.bart_like import SIDES, SINUSOIDS, TABLE, SinusoidalBartLike
from ordinate.pretrained.stored_sinusoids import sinusoid_table


class Pegasus(SinusoidalBartLike):
    """Pegasus, trained to write sentences that were cut out of a text: sinusoidal position embeddings, pre-norm.

    Source: Zhang et al. 2020, https://arxiv.org/abs/1912.08777.
    """

    model_type = "pegasus"
    generation_class = "PegasusForConditionalGeneration"
    norm_position = "pre"
    defaults: ClassVar[Mapping[str, Any]] = {
        **SinusoidalBartLike.defaults,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": 1,
    }

    def computed(self, shape: Shape) -> Mapping[str, Tensor]:
        # transformers stores them, those of a Marian it does not
        table = sinusoid_table(shape.max_length, shape.width).float()
        names = [f"{self.prefix}{side}.{TABLE}" for side in SIDES if shape.scheme_spec == SINUSOIDS]
        return {name: table.clone() for name in names}
