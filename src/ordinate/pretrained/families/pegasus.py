"""Pegasus."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.bart_like import SinusoidalBartLike


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
