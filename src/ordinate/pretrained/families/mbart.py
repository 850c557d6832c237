"""mBART."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.bart_like import LearnedBartLike


class Mbart(LearnedBartLike):
    """mBART and mBART-50: BART for many languages, with pre-norm and a norm after the last layers.

    Source: Liu et al. 2020, https://arxiv.org/abs/2001.08210.
    """

    model_type = "mbart"
    generation_class = "MBartForConditionalGeneration"
    norm_position = "pre"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LearnedBartLike.defaults,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": None,
        "forced_eos_token_id": 2,
    }
